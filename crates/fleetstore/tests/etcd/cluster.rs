//! Three members, of which some are killed or stopped.

use fleet::{Event, Request, Revision};

use crate::support::{Cluster, Fleet, record, run};

/// Written, after at most a few requests that were not answered.
async fn writes(fleet: &mut Fleet, name: &str) -> usize {
    let unanswered = fleet.eventually_swaps().await;
    fleet.write(&[name], Revision::ABSENT, Some(b"1")).await;
    unanswered
}

#[test]
fn another_member_is_used_when_one_is_killed() {
    run(async {
        let mut etcd = Cluster::start(3, &[]).await;
        let mut a = etcd.fleet("a");
        assert!(matches!(a.join(1).await, Event::Renewed { .. }));
        let (watch, _) = a.watch().await;
        etcd.members[0].kill();
        let lost = a.watched(watch).await;
        assert!(
            matches!(&lost, Event::WatchLost { why, .. } if why.contains(&etcd.members[0].port.to_string())),
            "{lost:?}"
        );
        let unanswered = writes(&mut a, "x").await;
        assert!(unanswered <= 2, "{unanswered}");
        assert!(matches!(a.renew(1).await, Event::Renewed { .. }));
        let (_, snapshot) = a.watch().await;
        assert!(
            matches!(snapshot, Event::Snapshot { nodes, objects, .. } if nodes.len() == 1 && objects.len() == 1)
        );
    });
}

#[test]
fn another_member_is_used_when_one_hangs() {
    run(async {
        let etcd = Cluster::start(3, &[]).await;
        let mut a = etcd.fleet("a");
        a.eventually_swaps().await;
        let (watch, _) = a.watch().await;
        etcd.members[0].signal("STOP");
        let (why, port) = (a.why_not().await, etcd.members[0].port);
        assert!(why.contains(&format!("127.0.0.1:{port}: no answer within 2000 ms")), "{why}");
        // The watch on that member is not waited for either.
        let lost = a.watched(watch).await;
        assert!(matches!(&lost, Event::WatchLost { .. }), "{lost:?}");
        assert_eq!(writes(&mut a, "x").await, 0, "the next member is used at once");
        // A new one does not begin with the member that hangs, or not for long.
        let mut b = etcd.fleet("b");
        assert_eq!(b.eventually_swaps().await, 0);
        etcd.members[0].signal("CONT");
    });
}

#[test]
fn without_a_quorum_nothing_is_answered_and_with_one_again() {
    run(async {
        let mut etcd = Cluster::start(3, &[]).await;
        let mut a = etcd.fleet("a");
        assert!(matches!(a.join(1).await, Event::Renewed { .. }));
        let (watch, _) = a.watch().await;
        etcd.members[1].kill();
        etcd.members[2].kill();
        // A member that is cut off ends watches.
        let lost = a.watched(watch).await;
        assert!(matches!(&lost, Event::WatchLost { .. }), "{lost:?}");
        let renewed = a.renew(1).await;
        let Event::Unanswered { why, .. } = renewed else { panic!("{renewed:?}") };
        assert!(why.contains(&etcd.members[0].port.to_string()), "{why}");
        let again = a.submit(|call| Request::Watch { call });
        let lost = a.watched(again).await;
        assert!(matches!(&lost, Event::WatchLost { why, .. } if why.contains("refused")), "{lost:?}");
        etcd.members[1].start();
        a.eventually_swaps().await;
        // Leases were not counted down meanwhile, or the node joins again.
        match a.renew(1).await {
            Event::Renewed { .. } => {}
            Event::Expired { .. } => assert!(matches!(a.join(2).await, Event::Renewed { .. })),
            other => panic!("{other:?}"),
        }
        let (_, snapshot) = a.watch().await;
        assert!(matches!(snapshot, Event::Snapshot { nodes, .. } if nodes.len() == 1));
    });
}

#[test]
fn a_member_that_nothing_listens_at_is_named() {
    run(async {
        let mut etcd = Cluster::start(1, &[]).await;
        let port = etcd.members[0].port;
        etcd.members[0].kill();
        let why = etcd.fleet("a").why_not().await;
        assert!(why.contains(&format!("127.0.0.1:{port}: ")) && why.contains("refused"), "{why}");
        let mut named = Fleet::new(&format!("etcd://nowhere.invalid,127.0.0.1:{port}/weir"), None, "a");
        let why = named.why_not().await;
        assert!(why.starts_with("nowhere.invalid:2379: ") && why.contains("; 127.0.0.1:"), "{why}");
        etcd.members[0].start();
        named.eventually_swaps().await;
        assert!(matches!(named.join(1).await, Event::Renewed { .. }));
        let (_, snapshot) = named.watch().await;
        assert!(matches!(snapshot, Event::Snapshot { nodes, .. } if nodes == [("a".into(), record(1))]));
    });
}
