//! One member: what etcd's answers become.

use std::time::Duration;

use crate::support::{Cluster, object, record, run};
use fleet::{Event, NodeRecord, Object, Request, Revision, SessionId};

#[test]
fn a_node_joins_renews_and_leaves_and_others_see_it() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut a, mut b) = (etcd.fleet("a"), etcd.fleet("b"));
        let (watch, snapshot) = b.watch().await;
        assert!(
            matches!(snapshot, Event::Snapshot { call, nodes, objects, .. } if call == watch && nodes.is_empty() && objects.is_empty())
        );
        let joined = a.join(7).await;
        assert!(matches!(joined, Event::Renewed { lease_us, .. } if lease_us >= 1_000_000), "{joined:?}");
        assert_eq!(b.watched(watch).await, Event::NodeSeen { watch, id: "a".into(), record: record(7) });
        let changed = NodeRecord { clients: 9, ..record(7) };
        let renewed = a.ask(|call| Request::Renew { call, record: changed.clone() }).await;
        assert!(matches!(renewed, Event::Renewed { .. }), "{renewed:?}");
        assert_eq!(
            b.watched(watch).await,
            Event::NodeSeen { watch, id: "a".into(), record: changed.clone() }
        );
        // The same record is not written again.
        let renewed = a.ask(|call| Request::Renew { call, record: changed.clone() }).await;
        assert!(matches!(renewed, Event::Renewed { .. }), "{renewed:?}");
        assert!(matches!(
            a.ask(|call| Request::Leave { call, session: SessionId(7) }).await,
            Event::Left { .. }
        ));
        assert_eq!(b.watched(watch).await, Event::NodeGone { watch, id: "a".into() });
        assert!(matches!(a.renew(7).await, Event::Expired { .. }));
    });
}

#[test]
fn an_id_is_one_sessions() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut first, mut second) = (etcd.fleet("a"), etcd.fleet("a"));
        assert!(matches!(first.join(1).await, Event::Renewed { .. }));
        match second.join(2).await {
            Event::IdTaken { by, .. } => assert_eq!(by, record(1)),
            other => panic!("{other:?}"),
        }
        // A Join that was not answered is made again.
        assert!(matches!(first.join(1).await, Event::Renewed { .. }));
        // A process that takes the session over renews it.
        let taken_over =
            second.ask(|call| Request::Renew { call, record: NodeRecord { clients: 4, ..record(1) } }).await;
        assert!(matches!(taken_over, Event::Renewed { .. }), "{taken_over:?}");
        // The refused one has left nothing behind.
        assert!(matches!(second.renew(2).await, Event::Expired { .. }));
        // Another session's end is not this one's.
        let leave = |call| Request::Leave { call, session: SessionId(2) };
        assert!(matches!(second.ask(leave).await, Event::Left { .. }));
        assert!(matches!(first.renew(1).await, Event::Renewed { .. }));
        etcd.members[0].delete("/weir/nodes/a");
        assert!(
            matches!(first.renew(1).await, Event::Expired { .. }),
            "the record is gone, the lease is not"
        );
    });
}

#[test]
fn a_node_that_does_not_renew_expires() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut a, mut b) = (etcd.fleet("a"), etcd.fleet("b"));
        assert!(matches!(a.join(1).await, Event::Renewed { .. }));
        let (watch, snapshot) = b.watch().await;
        assert!(matches!(snapshot, Event::Snapshot { nodes, .. } if nodes == [("a".into(), record(1))]));
        assert_eq!(b.watched(watch).await, Event::NodeGone { watch, id: "a".into() });
        assert!(matches!(a.renew(1).await, Event::Expired { .. }));
        assert!(matches!(a.join(2).await, Event::Renewed { .. }));
        assert_eq!(b.watched(watch).await, Event::NodeSeen { watch, id: "a".into(), record: record(2) });
    });
}

#[test]
fn the_lease_that_etcd_grants_counts_not_the_one_that_was_wished() {
    run(async {
        // The shortest lease of such an etcd is one and a half elections: 5 s.
        let etcd = Cluster::start(1, &["--heartbeat-interval=200", "--election-timeout=3000"]).await;
        let mut a = etcd.fleet("a");
        for event in [a.join(1).await, a.join(1).await, a.renew(1).await] {
            assert!(matches!(event, Event::Renewed { lease_us: 5_000_000, .. }), "{event:?}");
        }
    });
}

#[test]
fn objects_are_written_by_compare_and_swap_only() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let mut a = etcd.fleet("a");
        let name = &["slots", "one"][..];
        let first = a.write(name, Revision::ABSENT, Some(b"1")).await;
        let conflict = |event| matches!(event, Event::Conflict { .. });
        assert!(conflict(a.swap(name, Revision::ABSENT, Some(b"2")).await));
        let second = a.write(name, first, Some(b"2")).await;
        assert!(second > first);
        assert!(conflict(a.swap(name, first, Some(b"3")).await));
        assert!(conflict(a.swap(name, first, None).await));
        let removed = a.write(name, second, None).await;
        assert!(removed > second);
        for stale in [first, second, removed, Revision(u64::MAX)] {
            assert!(conflict(a.swap(name, stale, Some(b"4")).await), "{stale:?}");
        }
        let again = a.write(name, Revision::ABSENT, Some(b"1")).await;
        assert!(again > removed);
        assert!(conflict(a.swap(name, first, Some(b"5")).await), "the same contents, but another object");
        let (_, snapshot) = a.watch().await;
        let kept = Object { name: object(name), revision: again, contents: Some(b"1".to_vec()) };
        assert!(matches!(snapshot, Event::Snapshot { objects, .. } if objects == [kept]));
    });
}

#[test]
fn a_watch_shows_changes_in_their_order() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut a, mut b) = (etcd.fleet("a"), etcd.fleet("b"));
        let mut revision = a.write(&["x"], Revision::ABSENT, Some(b"0")).await;
        let (watch, _) = b.watch().await;
        let mut wanted = Vec::new();
        for count in 1..=20_u32 {
            let contents = (count % 7 != 0).then(|| count.to_string().into_bytes());
            let written = a.write(&["x"], revision, contents.as_deref()).await;
            revision = if contents.is_some() { written } else { Revision::ABSENT };
            wanted.push(Object { name: object(&["x"]), revision: written, contents });
        }
        for object in wanted {
            assert_eq!(b.watched(watch).await, Event::Changed { watch, object });
        }
    });
}

#[test]
fn a_snapshot_has_a_thousand_objects_with_any_names() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let mut a = etcd.fleet("a");
        let name = |count: u32| object(&["slots", "pool", &format!("db {count}/%41é\n"), "", "user@x"]);
        for count in 0..1000 {
            let contents = Some(count.to_string().into_bytes());
            a.submit(|call| Request::Swap { call, name: name(count), expected: Revision::ABSENT, contents });
        }
        for _ in 0..1000 {
            a.event(|event| match event {
                Event::Swapped { .. } => Some(()),
                other => panic!("{other:?}"),
            })
            .await;
        }
        let (_, snapshot) = a.watch().await;
        let Event::Snapshot { mut objects, .. } = snapshot else { panic!("{snapshot:?}") };
        assert_eq!(objects.len(), 1000);
        objects.sort_by_key(|object| object.revision);
        let mut found: Vec<_> =
            objects.into_iter().map(|object| (object.contents.unwrap(), object.name)).collect();
        let mut wanted: Vec<_> =
            (0..1000).map(|count| (count.to_string().into_bytes(), name(count))).collect();
        found.sort();
        wanted.sort();
        assert!(found == wanted);
    });
}

#[test]
fn large_objects_are_written_read_and_watched_and_too_large_ones_named() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut a, mut b) = (etcd.fleet("a"), etcd.fleet("b"));
        let (watch, _) = b.watch().await;
        // etcd's limit is 1.5 MiB for a request; gRPC's for an answer would be 4 MiB.
        let large = vec![b'x'; 1_500_000];
        for name in ["a", "b", "c", "d"] {
            a.write(&[name], Revision::ABSENT, Some(&large)).await;
            let event = b.watched(watch).await;
            assert!(
                matches!(event, Event::Changed { object, .. } if object.contents.as_ref() == Some(&large))
            );
        }
        let (_, snapshot) = b.watch().await;
        assert!(matches!(snapshot, Event::Snapshot { objects, .. } if objects.len() == 4));
        match a.swap(&["e"], Revision::ABSENT, Some(&vec![b'x'; 1_600_000])).await {
            Event::Unanswered { why, .. } => assert!(why.contains("request is too large"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(
            matches!(a.swap(&["e"], Revision(1), None).await, Event::Conflict { .. }),
            "the store is still used"
        );
    });
}

#[test]
fn what_is_not_the_fleets_is_named_once() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let member = &etcd.members[0];
        for key in ["/weir/other", "/weir/objects/a b", "/weir/nodes/x/y", "/weir/nodes/unleased"] {
            member.put(key, r#"{"session": "0000000000000001"}"#);
        }
        member.put("/weirs/nodes/a", "of another fleet");
        let mut a = etcd.fleet("unleased");
        let (watch, snapshot) = a.watch().await;
        assert!(
            matches!(snapshot, Event::Snapshot { nodes, objects, .. } if nodes.is_empty() && objects.is_empty())
        );
        let mut foreign = Vec::new();
        for _ in 0..4 {
            foreign.push(a.event(what).await);
        }
        foreign.sort();
        assert_eq!(
            foreign,
            [
                r#"key "/weir/nodes/unleased" is the record of a node, but has no lease"#,
                r#"key "/weir/nodes/x/y" is no key of a fleet"#,
                r#"key "/weir/objects/a b" is no key of a fleet"#,
                r#"key "/weir/other" is no key of a fleet"#,
            ]
        );
        assert!(matches!(a.join(2).await, Event::IdTaken { by, .. } if by.session == SessionId(1)));
        member.put("/weir/nodes/unleased", "?");
        let why = a.why_not().await;
        assert!(
            why.contains("/weir/nodes/unleased is there, but is no record of a node; remove it"),
            "{why}"
        );
        // Again: not named; a new one is, in its place.
        member.put("/weir/other", "again");
        member.put("/weir/new", "");
        a.write(&["x"], Revision::ABSENT, Some(b"1")).await;
        assert!(matches!(a.watched(watch).await, Event::Changed { .. }));
        assert_eq!(a.event(what).await, r#"key "/weir/new" is no key of a fleet"#);
        a.watch().await;
        a.swap(&["x"], Revision(1), None).await;
        let silent = tokio::time::timeout(Duration::from_millis(1), a.event(what)).await;
        assert!(silent.is_err(), "{silent:?}");
    });
}

fn what(event: &Event) -> Option<String> {
    match event {
        Event::Foreign { what } => Some(what.clone()),
        _ => None,
    }
}

#[test]
fn a_watch_that_etcd_has_compacted_away_is_lost_and_begins_again() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let (mut slow, mut writer) = (etcd.fleet("slow"), etcd.fleet("writer"));
        let (watch, _) = slow.watch().await;
        // Nothing is taken from `slow` meanwhile: its events, HTTP/2's window and etcd's own queue fill up, and the watch falls behind.
        let contents = vec![b'x'; 20_000];
        let mut revision = writer.write(&["x"], Revision::ABSENT, Some(&contents)).await;
        for _ in 0..1500 {
            revision = writer.write(&["x"], revision, Some(&contents)).await;
        }
        etcd.members[0].compact();
        let why = slow
            .event(|event| match event {
                Event::WatchLost { watch: lost, why } if *lost == watch => Some(why.clone()),
                _ => None,
            })
            .await;
        assert!(why.contains("compacted"), "{why}");
        let (_, snapshot) = slow.watch().await;
        assert!(
            matches!(snapshot, Event::Snapshot { objects, .. } if objects.len() == 1 && objects[0].revision == revision)
        );
    });
}
