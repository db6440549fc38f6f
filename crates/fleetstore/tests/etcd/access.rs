//! Who may use etcd: users, permissions, TLS.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet::{Event, Request, Revision, SessionId};
use fleetstore::{EtcdOptions, EtcdTls};
use serde_json::json;
use settings::EtcdUrl;

use crate::support::{Certificates, Cluster, Fleet, Member, TempDir, run};

/// A user with a role that may read and write below a prefix.
fn add_user(member: &Member, name: &str, prefix: &str, token: Option<&str>) {
    let post = |path: &str, body| member.post(path, &body, token);
    post("auth/user/add", json!({ "name": name, "password": format!("{name}@pw") }));
    post("auth/role/add", json!({ "name": name }));
    let (first, behind) = (STANDARD.encode(format!("{prefix}/")), STANDARD.encode(format!("{prefix}0")));
    let permission = json!({ "permType": "READWRITE", "key": first, "range_end": behind });
    post("auth/role/grant", json!({ "name": name, "perm": permission }));
    post("auth/user/grant", json!({ "user": name, "role": name }));
}

/// Users root and weir, and another one for another prefix; a token of root's.
fn enforce_users(member: &Member) -> String {
    member.post("auth/user/add", &json!({ "name": "root", "password": "root" }), None);
    member.post("auth/role/add", &json!({ "name": "root" }), None);
    member.post("auth/user/grant", &json!({ "user": "root", "role": "root" }), None);
    add_user(member, "weir", "/weir", None);
    add_user(member, "other", "/other", None);
    member.post("auth/enable", &json!({}), None);
    let answer = member.post("auth/authenticate", &json!({ "name": "root", "password": "root" }), None);
    answer["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_user_needs_the_password_and_permission_on_the_prefix_only() {
    run(async {
        let etcd = Cluster::start(1, &[]).await;
        let fleet = |user: &str| {
            Fleet::new(&format!("etcd://{user}127.0.0.1:{}/weir", etcd.members[0].port), None, "a")
        };
        // Before users are enforced.
        assert_eq!(fleet("weir:weir%40pw@").eventually_swaps().await, 0);
        let root = enforce_users(&etcd.members[0]);
        let label = format!("127.0.0.1:{}: ", etcd.members[0].port);
        for (user, why) in [
            ("", "etcd demands a user: etcd://USER:PASSWORD@HOST/PREFIX"),
            ("weir:wrong@", "user \"weir\" or its password is wrong"),
            ("nobody:x@", "user \"nobody\" or its password is wrong"),
            ("other:other%40pw@", "user \"other\" may not read and write keys below /weir/"),
        ] {
            let said = fleet(user).why_not().await;
            assert!(said.starts_with(&format!("{label}{why}")) && !said.contains("wrong@"), "{said}");
        }
        let mut weir = fleet("weir:weir@pw@");
        assert!(matches!(weir.join(1).await, Event::Renewed { .. }));
        let (watch, snapshot) = weir.watch().await;
        assert!(matches!(snapshot, Event::Snapshot { nodes, .. } if nodes.len() == 1));
        let revision = weir.write(&["x"], Revision::ABSENT, Some(b"1")).await;
        assert!(
            matches!(weir.watched(watch).await, Event::Changed { object, .. } if object.revision == revision)
        );
        // Tokens are of an older revision of users and roles then.
        add_user(&etcd.members[0], "third", "/third", Some(&root));
        assert!(matches!(weir.renew(1).await, Event::Renewed { .. }));
        weir.write(&["x"], revision, None).await;
        assert!(matches!(
            weir.ask(|call| Request::Leave { call, session: SessionId(1) }).await,
            Event::Left { .. }
        ));
    });
}

#[test]
fn tls_checks_the_member_and_the_client() {
    run(async {
        let dir = TempDir::new();
        let certificates = Certificates(&dir.0);
        certificates.make();
        let (read, path) =
            (|name: &str| certificates.read(name), |name: &str| dir.0.join(name).display().to_string());
        let identity = Some((read("client.crt"), read("client.key")));
        let arguments = [
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", path("root.crt")),
            format!("--cert-file={}", path("server.crt")),
            format!("--key-file={}", path("server.key")),
        ];
        let etcd = Cluster::spawn(1, &arguments.each_ref().map(String::as_str));
        let fleet = |tls: Option<EtcdTls>, host: &str| {
            Fleet::new(&format!("etcd://{host}:{}/weir", etcd.members[0].port), tls, "a")
        };
        let good = EtcdTls { ca: read("root.crt"), identity: identity.clone() };
        fleet(Some(good.clone()), "127.0.0.1").eventually_swaps().await;
        assert!(matches!(fleet(Some(good.clone()), "127.0.0.1").join(1).await, Event::Renewed { .. }));
        for (tls, host, why) in [
            (
                Some(EtcdTls { ca: read("root.crt"), identity: None }),
                "127.0.0.1",
                "etcd demands a client certificate",
            ),
            (
                Some(EtcdTls { ca: read("other.crt"), identity }),
                "127.0.0.1",
                "no certificate in fleet_tls_ca_file has signed",
            ),
            (Some(good), "localhost", "the member's certificate is for another name"),
            (None, "127.0.0.1", "the member speaks TLS on this port"),
        ] {
            let said = fleet(tls, host).why_not().await;
            assert!(said.contains(why), "{said}");
        }
    });
}

#[test]
fn a_member_without_tls_is_named() {
    run(async {
        let dir = TempDir::new();
        let certificates = Certificates(&dir.0);
        certificates.make();
        let etcd = Cluster::start(1, &[]).await;
        let tls = EtcdTls { ca: certificates.read("root.crt"), identity: None };
        let why = Fleet::new(&format!("etcd://{}/weir", etcd.hosts()), Some(tls), "a").why_not().await;
        assert!(why.contains("the member does not speak TLS"), "{why}");
    });
}

#[test]
fn files_without_certificates_are_refused_at_once() {
    let dir = TempDir::new();
    let certificates = Certificates(&dir.0);
    certificates.make();
    let (root, key) = (certificates.read("root.crt"), certificates.read("client.key"));
    for (ca, identity, why) in [
        (Vec::new(), None, "fleet_tls_ca_file: it has no certificate"),
        (
            b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec(),
            None,
            "fleet_tls_ca_file: ",
        ),
        (root.clone(), Some((root.clone(), root.clone())), "fleet_tls_cert_file, fleet_tls_key_file: "),
        (root.clone(), Some((root.clone(), key)), "fleet_tls_cert_file, fleet_tls_key_file: "),
    ] {
        let options = EtcdOptions {
            url: EtcdUrl::parse("etcd://h/p").unwrap(),
            tls: Some(EtcdTls { ca, identity }),
            node: "a".into(),
            lease_s: 1,
            request_timeout: EtcdOptions::REQUEST_TIMEOUT,
        };
        let said = options.check().unwrap_err().to_string();
        assert!(said.starts_with(why), "{said}");
    }
}
