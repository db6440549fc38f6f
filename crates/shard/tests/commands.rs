//! Commands of an operator: what each leaves behind once it is undone.
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

use mail::{Command, RequestId};
use shard::Event;

use wire::backend::Status;
use world::World;

fn order(world: &mut World, command: Command) {
    world.event(Event::Command(command));
}

#[test]
fn resume_forgets_the_pause_that_it_undoes_and_no_other() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    for request in 1..=3 {
        order(&mut world, Command::Pause { request: RequestId(request), database: None });
        order(&mut world, Command::Resume { database: None });
    }
    assert_eq!(world.shard.audit().leftovers.commands, 0, "nothing waits for what was undone");
    order(&mut world, Command::Pause { request: RequestId(4), database: Some("d".to_owned()) });
    order(&mut world, Command::Resume { database: None });
    assert_eq!(world.shard.audit().leftovers.commands, 1, "the database is still paused");
    order(&mut world, Command::Resume { database: Some("d".to_owned()) });
    assert_eq!(world.shard.audit().leftovers.commands, 0);
}
