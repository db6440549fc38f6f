//! A takeover in memory: what one shard exports is imported into another.

use std::collections::BTreeMap;

use shard::{ConnId, Event, Export, Import};

use super::World;

/// Where a connection of the old shard is on the new one.
pub type Places = BTreeMap<ConnId, ConnId>;

/// Imports into the new shard what the old one has exported; true if the old one reported that nothing is left.
pub fn carry(old: &mut World, new: &mut World, places: &mut Places) -> bool {
    bring(std::mem::take(&mut old.exported), new, places)
}

pub fn bring(exported: Vec<Export>, new: &mut World, places: &mut Places) -> bool {
    let mut halves: BTreeMap<u64, (ConnId, Vec<u8>)> = BTreeMap::new();
    let mut is_empty = false;
    let inherit = |new: &mut World, word| new.event(Event::Import(Box::new(word)));
    for what in exported {
        match what {
            Export::Pool { state } => inherit(new, Import::Pool { state }),
            Export::ServerOpened { state } => inherit(new, Import::ServerOpened { state }),
            Export::ServerClosed { state } => inherit(new, Import::ServerClosed { state }),
            Export::Empty { .. } => is_empty = true,
            Export::Kept { .. } => {}
            Export::Socket { conn, state, link, is_server } => {
                let place = new.shard.allocate_id();
                places.insert(conn, place);
                match link.map(|link| (link, halves.remove(&link))) {
                    None if is_server => inherit(new, Import::Server { conn: place, state }),
                    None => inherit(new, Import::Client { conn: place, state }),
                    Some((link, None)) => drop(halves.insert(link, (place, state))),
                    Some((_, Some((client, client_state)))) => {
                        assert!(is_server, "the client goes first");
                        let (server, server_state) = (place, state);
                        inherit(new, Import::Linked { client, client_state, server, server_state });
                    }
                }
            }
        }
    }
    assert!(halves.is_empty(), "half a pair");
    is_empty
}

/// Imports all that the old shard has exported: where its connections are on the new one.
pub fn import_all(old: &mut World, new: &mut World) -> Places {
    let mut places = Places::new();
    carry(old, new, &mut places);
    places
}
