//! Resident memory for each idle client, as the slope between few and many, so that what a pooler needs in any case
//! does not count. Each client logged in by SCRAM and ran one transaction under its own application_name.

use std::time::Duration;

use crate::full::Bench;
use crate::full::account::memory;
use crate::full::sample::Sample;
use crate::full::subjects::Contender;
use crate::full::work::Label;
use crate::template::Variant;
use lab::client::{Client, Keyring, Login};
use lab::error::Result;
use lab::laboratory::ROLE;
use lab::screen::Screen;

/// How long the pooler may tidy up before its memory is read.
const SETTLE: Duration = Duration::from_secs(2);

/// Fills the pooler with idle clients and reads its memory twice.
pub(super) fn run(
    bench: &Bench<'_>,
    variant: Variant,
    contender: &Contender,
    label: &Label,
    screen: &mut Screen,
) -> Result<Sample> {
    let Some(leader) = contender.leader() else { return Ok(Sample::default()) };
    let (few, many) = bench.sizes.idle;
    let mut clients = Vec::new();
    let mut keyring = bench.secrets.keyring();
    let mut at = |count: u32, screen: &mut Screen| {
        fill(bench, variant, contender, &mut keyring, &mut clients, count, screen)?;
        bench.lab.interrupt().sleep(SETTLE)?;
        Ok(memory(leader))
    };
    let with_few = at(few, screen)?;
    let with_many = at(many, screen)?;
    screen.close();
    let client_kib = (with_many.resident_kib - with_few.resident_kib) / f64::from(many - few);
    let said = format!("{few} clients: {with_few:#?}\n{many} clients: {with_many:#?}\n");
    Ok(Sample {
        units: f64::from(many - few),
        few_kib: Some(with_few.resident_kib),
        many_kib: Some(with_many.resident_kib),
        client_kib: Some(client_kib),
        logs: vec![bench.keep(label, "memory", &said)?],
        ..Sample::default()
    })
}

fn fill(
    bench: &Bench<'_>,
    variant: Variant,
    contender: &Contender,
    keyring: &mut Keyring,
    clients: &mut Vec<Client>,
    count: u32,
    screen: &mut Screen,
) -> Result<()> {
    let many = f64::from(bench.sizes.idle.1);
    let wanted = usize::try_from(count).unwrap_or_default();
    while clients.len() < wanted {
        bench.lab.interrupt().check()?;
        let application_name = format!("application {}", clients.len());
        let login = Login {
            application_name: &application_name,
            tls: variant.has_tls().then_some(&bench.secrets.tls),
            ..Login::plain(ROLE, ROLE)
        };
        let mut client = Client::connect_as(contender.target.port, &login, keyring)?;
        client.query("SELECT 1")?;
        clients.push(client);
        if clients.len().is_multiple_of(250) {
            let text = format!("{}: {} clients", contender.name, clients.len());
            screen.progress(clients.len() as f64 / many, &text);
        }
    }
    Ok(())
}
