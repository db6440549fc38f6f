//! The clients' side: sessions that come and go, their bytes, and those who send cancel requests for them.

use super::{Era, Owner, ProcessStart, What, World};
use crate::client::context::ClientContext;
use crate::client::session::{Client, Phase};
use crate::network::{End, Ending};
use crate::pooler::Pooler;
use crate::protocol::untyped;
use crate::setup;
use crate::swarm::ClientMix;
use settings::{AuthType, PoolMode};

/// The longest pause of a slow writer between two pieces.
const PIECE_PAUSE_US: u64 = 500;
/// What the pooler says to a connection that does not log in in time.
const LOGIN_TIMEOUT: &[u8] = b"E\0\0\x000SFATAL\0VFATAL\0C08P01\0Mclient_login_timeout\0\0";
/// What a client may do once the faults are over: nothing bad, and not for long.
const PROBE_REQUESTS: u64 = 3;

impl<P: Pooler> World<P> {
    /// Runs something of a client with the world around it.
    fn with_client(&mut self, number: u32, act: impl FnOnce(&mut Client, &mut ClientContext<'_>)) {
        let fair = self.is_fair();
        let pooling = &self.swarm.pooling;
        let own = self.clients[number as usize].replicates;
        let shares = pooling.always_shares() && !own;
        let mut scene = ClientContext {
            prng: &mut self.prngs[number as usize],
            steps: &mut self.steps,
            checker: &mut self.checker,
            client_mix: &self.swarm.client_mix,
            now_us: self.clock.now_us(),
            fair,
            asks: self.swarm.pooling.auth_type != AuthType::Trust,
            named: own || pooling.always_names(),
            sql_names: pooling.sql_names(),
            keeps_sessions: pooling.keeps_sessions() && !own,
            gives_settings: self.swarm.servers.question_fails_per_million == 0,
            modern: self.swarm.servers.modern,
            spoils: self.swarm.servers.ddl_per_million > 0,
            mends: self.pools && pooling.max_prepared_statements > 0 && pooling.always_names() && shares,
            defers: pooling.deferred_begin && !own,
            refuses: pooling.queueing.refuses() || pooling.quotas.queries > 0,
            quota: self.quotas.of(pooling.quotas, self.clients[number as usize].user()),
            shares,
            chaos: self.era == Era::Chaos,
        };
        let client = &mut self.clients[number as usize];
        let (requests, written) = (client.requests(), client.output.len());
        let goes_on = client.goes_on();
        act(client, &mut scene);
        let goes_on = goes_on || client.is_in_transaction();
        let has_sent = client.output.len() > written;
        let acknowledged = std::mem::take(&mut self.checker.acknowledged);
        if self.swarm.hosts.is_some() {
            if has_sent {
                self.note_sent(number, requests, goes_on);
            }
            self.note_acknowledged(number, &acknowledged);
        }
    }

    /// A slot gets a session.
    pub(super) fn begin_session(&mut self, slot: u32) {
        if self.era == Era::Healing || self.slots[slot as usize].is_some() {
            return;
        }
        let mut prng = self.prng.fork();
        if !self.steps.take() {
            return;
        }
        let number = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        let pooling = &self.swarm.pooling;
        let database = setup::database(slot % pooling.databases);
        let user = setup::user((slot / pooling.databases) % pooling.users);
        let probing = self.era == Era::Probing;
        let fair = self.is_fair();
        let mut scene = ClientContext {
            prng: &mut prng,
            steps: &mut self.steps,
            checker: &mut self.checker,
            client_mix: &self.swarm.client_mix,
            now_us: self.clock.now_us(),
            fair,
            asks: self.swarm.pooling.auth_type != AuthType::Trust,
            named: pooling.always_names(),
            sql_names: pooling.sql_names(),
            keeps_sessions: pooling.keeps_sessions(),
            gives_settings: self.swarm.servers.question_fails_per_million == 0,
            modern: self.swarm.servers.modern,
            spoils: self.swarm.servers.ddl_per_million > 0,
            mends: false,
            defers: false,
            refuses: pooling.queueing.refuses() || pooling.quotas.queries > 0,
            quota: self.quotas.of(pooling.quotas, &user),
            shares: pooling.pool_mode == PoolMode::Transaction || pooling.reloads.pool_mode,
            chaos: !probing,
        };
        let mut client = Client::new(number, &user, &database, &mut scene);
        self.steps.note(format_args!("c{number} comes as {user} of {database}"));
        if probing {
            client.budget = PROBE_REQUESTS;
        }
        let now_us = self.clock.now_us();
        client.disturbed |= self.current.is_none() || self.operator.is_unsafe(&database, now_us);
        self.births.push(ProcessStart { at_us: now_us, database });
        let end = self.network.open();
        self.set_owner(end, Owner::Client(number));
        self.set_owner(end.peer(), Owner::Nobody);
        self.clients.push(client);
        self.prngs.push(prng);
        self.client_ends.push(Some(end));
        self.slots[slot as usize] = Some(number);
        let delay = self.network.delay_us();
        self.clock.after(delay, What::Accept(end.peer()));
        self.after_client(number);
    }

    /// Wakes a client then, unless it is woken earlier anyway.
    fn plan_client(&mut self, number: u32, at_us: u64) {
        let client = &mut self.clients[number as usize];
        if client.wakes_at_us.is_none_or(|planned| at_us < planned) {
            client.wakes_at_us = Some(at_us);
            self.clock.at(at_us, What::ClientWake(number));
        }
    }

    /// The time that a client was to be woken at has come.
    pub(super) fn wake_client(&mut self, number: u32) {
        let client = &mut self.clients[number as usize];
        if client.wakes_at_us.is_some_and(|planned| planned <= self.clock.now_us()) {
            client.wakes_at_us = None;
            self.client_acts(number);
        }
    }

    pub(super) fn client_reads(&mut self, number: u32) {
        let Some(end) = self.client_ends[number as usize] else { return };
        let now_us = self.clock.now_us();
        let deaf_until = self.clients[number as usize].deaf_until_us;
        if now_us < deaf_until {
            // It is woken when it listens again.
            return self.plan_client(number, deaf_until);
        }
        let mut bytes = Vec::new();
        self.network.read(end, usize::MAX, &mut bytes, &mut self.clock);
        self.trace.bytes(&bytes);
        let hung_up = self.network.exhausted(end);
        self.with_client(number, |client, scene| {
            client.receive(&bytes, scene);
            if hung_up {
                client.hung_up(scene);
            }
        });
        self.expect_let_in(number);
        self.expect_spared(number, hung_up);
        if hung_up {
            self.close_client(number, Ending::Finish);
        }
        self.client_acts(number);
    }

    /// A client does something of its own accord, if it wants to.
    pub(super) fn client_acts(&mut self, number: u32) {
        let Some(end) = self.client_ends[number as usize] else { return };
        let deaf = self.clock.now_us() < self.clients[number as usize].deaf_until_us;
        if !deaf && (self.network.readable(end) > 0 || self.network.exhausted(end)) {
            return self.client_reads(number);
        }
        self.with_client(number, Client::act);
        if self.trace.keeps_lines() {
            let client = &self.clients[number as usize];
            let (words, thinks, doom) = (client.wait_in_words(), client.thinks_until_us, client.doom);
            self.say(format_args!("c{number} acts: {words}, thinks until {thinks}, doom {doom:?}"));
        }
        self.after_client(number);
    }

    /// Writes what a client wants to send and does what it wants done.
    fn after_client(&mut self, number: u32) {
        self.client_writes(number);
        let client = &mut self.clients[number as usize];
        if std::mem::take(&mut client.wants_cancel)
            && let Some(key) = client.key
            && self.steps.take()
        {
            self.steps.note(format_args!("c{number} has its query cancelled"));
            client.cancels += 1;
            self.send_cancel(key);
        }
        let client = &mut self.clients[number as usize];
        if let Some(ending) = client.wants_close.take() {
            return self.close_client(number, ending);
        }
        let deaf_until = client.deaf_until_us;
        let acts = !client.is_waiting() || client.sends_ahead();
        if client.phase == Phase::Open && acts || client.gives_up() {
            let at_us = client.acts_next_us(self.clock.now_us());
            self.plan_client(number, at_us);
        }
        if deaf_until > self.clock.now_us() {
            self.plan_client(number, deaf_until);
        }
    }

    pub(super) fn client_writes(&mut self, number: u32) {
        let Some(end) = self.client_ends[number as usize] else { return };
        let client = &mut self.clients[number as usize];
        if client.output.is_empty() {
            return;
        }
        if self.clock.now_us() < client.silent_until_us {
            let at_us = client.silent_until_us;
            return self.plan_client(number, at_us);
        }
        let mut most = client.doom.map_or(usize::MAX, |(left, _)| left).min(client.output.len());
        if let Some((left, _)) = client.stands_at {
            most = most.min(left);
        }
        if client.piece_most > 0 {
            most = most.min(usize::try_from(self.prng.between(1, client.piece_most)).unwrap_or(1));
        }
        let bytes = &client.output.make_contiguous()[..most];
        let written = self.network.write(end, bytes, &mut self.clock);
        client.output.drain(..written);
        if client.piece_most > 0 && !client.output.is_empty() && written > 0 {
            let at_us = self.clock.now_us() + 1 + self.prng.below(PIECE_PAUSE_US);
            self.plan_client(number, at_us);
        }
        let client = &mut self.clients[number as usize];
        if let Some((left, while_us)) = &mut client.stands_at {
            *left -= written;
            if *left == 0 {
                let until_us = self.clock.now_us() + *while_us;
                (client.silent_until_us, client.stands_at) = (until_us, None);
                self.plan_client(number, until_us);
            }
        }
        let client = &mut self.clients[number as usize];
        if let Some((left, ending)) = &mut client.doom {
            *left -= written;
            if *left == 0 {
                let ending = *ending;
                self.with_client(number, |client, scene| client.leave(scene));
                self.close_client(number, ending);
            }
        }
    }

    /// Closes a client's side; its slot is free.
    pub(super) fn close_client(&mut self, number: u32, ending: Ending) {
        let Some(end) = self.client_ends[number as usize].take() else { return };
        self.say(format_args!("c{number} closes: {ending:?}"));
        // What it has said is sent, as far as there is room.
        let client = &mut self.clients[number as usize];
        if client.doom.is_none() && ending == Ending::Finish {
            let rest = client.output.make_contiguous();
            self.network.write(end, rest, &mut self.clock);
        }
        self.network.close(end, ending, &mut self.clock);
        self.set_owner(end, Owner::Nobody);
        let Some(slot) = self.slots.iter().position(|session| *session == Some(number)) else { return };
        self.slots[slot] = None;
        if self.era == Era::Chaos {
            let (least, most) = self.swarm.client_mix.away_us;
            let delay = self.prng.log_between(least, most);
            self.clock.after(delay, What::Session(u32::try_from(slot).unwrap_or(0)));
        }
    }

    fn send_cancel(&mut self, key: (u32, u32)) {
        let end = self.network.open();
        self.set_owner(end, Owner::Canceller);
        self.set_owner(end.peer(), Owner::Nobody);
        let mut out = Vec::new();
        untyped(&mut out, |body| {
            for number in [80_877_102, key.0, key.1] {
                body.extend_from_slice(&number.to_be_bytes());
            }
        });
        // The smallest pipe holds it whole.
        self.network.write(end, &out, &mut self.clock);
        let delay = self.network.delay_us();
        self.clock.after(delay, What::Accept(end.peer()));
    }

    pub(super) fn canceller_looks(&mut self, end: End) {
        let mut answer = Vec::new();
        self.network.read(end, usize::MAX, &mut answer, &mut self.clock);
        if !answer.is_empty() {
            let told = self.cancel_answers.entry(end.link.0).or_default();
            let rest = LOGIN_TIMEOUT.get(*told..).unwrap_or_default();
            *told += answer.len();
            // One that is not read before its login has lasted too long is a client like any other.
            let is_excused = self.clock.now_us() < self.excused_until_us;
            let may_be_late = is_excused || self.swarm.pooling.reloads.timeouts;
            if !may_be_late || !rest.starts_with(&answer) {
                self.checker.object("I1", "a cancel request was answered");
            }
        }
        if self.network.exhausted(end) {
            self.network.close(end, Ending::Finish, &mut self.clock);
            self.set_owner(end, Owner::Nobody);
        }
    }

    /// The faults are over: sessions come to an end, one after another.
    pub(super) fn calm_clients(&mut self) {
        for client in &mut self.clients {
            client.budget = client.budget.min(2);
        }
    }

    pub(super) fn begin_probing(&mut self) {
        self.era = Era::Probing;
        self.swarm.client_mix = ClientMix {
            cancel_per_million: 0,
            garbage_per_million: 0,
            die_per_million: 0,
            long_idle_per_million: 0,
            deaf_per_million: 0,
            think_us: 1_000,
            ..self.swarm.client_mix.clone()
        };
        for slot in 0..self.swarm.client_mix.slots {
            self.begin_session(slot);
        }
    }
}
