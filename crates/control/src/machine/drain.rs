//! DRAIN and UNDRAIN: clients go to other processes, from this one or from another node of the fleet.
//! The shards refuse and end clients; the fleet's thread carries orders to other nodes.

use messages::{Command, Drain};
use settings::END_CLIENTS;

use crate::interface::Output;
use crate::machine::commands::log_command;
use crate::machine::dispatch::CommandContext;
use crate::request::{Purpose, Request};
use crate::{CommandError, Control};

/// For the store to write an order.
const TIMEOUT_US: u64 = 10_000_000;

/// DRAIN [node] [END_CLIENTS].
pub(crate) fn drain(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let is_end = |word: &str| word.eq_ignore_ascii_case(END_CLIENTS);
    match (context.argument, context.host) {
        (Some(word), None) if is_end(word) => control.order_drain(context, "DRAIN", None, Drain::AllClients),
        (node, None) => control.order_drain(context, "DRAIN", node, Drain::NewClients),
        (node, Some(word)) if is_end(word) => control.order_drain(context, "DRAIN", node, Drain::AllClients),
        _ => return Err(context.invalid()),
    }
    Ok(())
}

/// UNDRAIN [node].
pub(crate) fn undrain(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    control.order_drain(context, "UNDRAIN", context.argument, Drain::Off);
    Ok(())
}

impl Control {
    /// Clients go to other processes.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.pause_state.drain() != Drain::Off
    }

    fn order_drain(
        &mut self,
        context: &CommandContext<'_>,
        word: &'static str,
        node: Option<&str>,
        order: Drain,
    ) {
        log_command(self, context, word, node);
        let Some(node) = node else {
            self.drain(order);
            return self.complete(context.requester, word);
        };
        let deadline_us = Some(self.now_us + TIMEOUT_US);
        let requester = Some(context.requester);
        let request = Request { requester, owed: 1, deadline_us, purpose: Purpose::Drain(word) };
        let request = self.requests.open(request);
        self.push(Output::OrderDrain { request, node: node.to_owned(), order });
    }

    /// Another node, or a client of the console, has ordered this.
    pub(crate) fn drain(&mut self, order: Drain) {
        if self.pause_state.drain() == order {
            return;
        }
        self.pause_state.set_drain(order);
        self.log(match order {
            Drain::Off => "draining ended, new clients are accepted",
            Drain::NewClients => "draining, new clients are refused",
            Drain::AllClients => {
                "draining, new clients are refused and connected ones ended outside of transactions"
            }
        });
        self.broadcast(&Command::Drain(order));
        self.push(Output::Draining(order != Drain::Off));
    }

    /// The fleet's thread has answered a command: an order to drain has reached the store, or all nodes have done what was asked.
    pub(crate) fn fleet_answered(&mut self, request: messages::RequestId, result: Result<(), String>) {
        let Some(Request {
            requester: Some(requester),
            purpose: Purpose::Drain(word) | Purpose::Fleet(word),
            ..
        }) = self.requests.close(request)
        else {
            return;
        };
        match result {
            Ok(()) => self.complete(requester, word),
            Err(why) => self.refuse(requester, &CommandError::Fleet(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::harness::Harness;
    use messages::RequestId;

    fn told(harness: &Harness) -> Vec<Drain> {
        let drain = |(_, command): &(u16, Command)| match command {
            Command::Drain(order) => Some(*order),
            _ => None,
        };
        harness.told.iter().filter_map(drain).collect()
    }

    #[test]
    fn this_process_drains_at_once_and_every_shard_knows() {
        let mut harness = Harness::new();
        harness.ask("DRAIN");
        assert_eq!(harness.tag(), "DRAIN");
        assert_eq!(told(&harness), [Drain::NewClients; 2]);
        harness.ask("drain end_clients");
        assert_eq!(told(&harness)[2..], [Drain::AllClients; 2]);
        assert_eq!(harness.draining, Some(true));
        harness.ask("DRAIN END_CLIENTS");
        assert_eq!(told(&harness).len(), 4, "it does already");
        harness.ask("UNDRAIN");
        assert_eq!(harness.tag(), "UNDRAIN");
        assert_eq!((told(&harness).last(), harness.draining), (Some(&Drain::Off), Some(false)));
    }

    #[test]
    fn an_order_for_a_node_is_answered_when_it_is_given() {
        let mut harness = Harness::new();
        harness.ask("DRAIN n-2 END_CLIENTS");
        assert!(told(&harness).is_empty());
        let (request, node, order) = harness.ordered_drain.take().expect("an order");
        assert_eq!((node.as_str(), order), ("n-2", Drain::AllClients));
        harness.input(Input::DrainOrdered { request, result: Ok(()) });
        assert_eq!(harness.tag(), "DRAIN");
        harness.ask("UNDRAIN \"n-2\"");
        let (request, _, order) = harness.ordered_drain.take().expect("an order");
        assert_eq!(order, Drain::Off);
        harness.input(Input::DrainOrdered { request: RequestId(request.0 + 9), result: Ok(()) });
        harness.input(Input::DrainOrdered { request, result: Err("no node n-2 is up".to_owned()) });
        assert_eq!(harness.error(), ("55000", "no node n-2 is up"));
    }

    #[test]
    fn what_another_node_has_ordered_is_done_and_goes_on_in_the_next_process() {
        let mut harness = Harness::new();
        harness.input(Input::Drain(Drain::AllClients));
        assert_eq!(told(&harness), [Drain::AllClients; 2]);
        harness.ask("TAKEOVER line");
        let (_, note) = harness.handed_over.clone().expect("an output");
        let mut next = Harness::new();
        next.control.import(&note);
        next.input(Input::Tick);
        assert_eq!((told(&next), next.draining), (vec![Drain::AllClients; 2], Some(true)));
    }

    #[test]
    fn what_follows_the_node_is_nothing_else() {
        let mut harness = Harness::new();
        for sql in ["DRAIN n-2 now", "DRAIN n-2 END_CLIENTS now", "UNDRAIN n-2 END_CLIENTS"] {
            harness.ask(sql);
            assert_eq!(harness.error().0, "42601", "{sql}");
        }
    }
}
