//! The deployment's catalog and that of a namespace, about the word of an issuer.

use stepwell_protocol::{
    Code,
    access::{Issuer, NamespaceOf},
};

use super::{
    super::{Input, Order, Relation, TELL_AGAIN_MS},
    World, at, credential,
};
use crate::{
    object::{Fault, Hosted as _, Machine as _},
    token::Vouched,
};

const ISS: &str = "https://issuer.example";

fn issuer(audience: &str) -> Issuer {
    Issuer {
        issuer: ISS.into(),
        audience: audience.into(),
        jwks_url: "https://issuer.example/jwks".into(),
        namespace: NamespaceOf::Fixed("acme".into()),
        namespaces: Vec::new(),
        scopes_claim: None,
        scopes_max: Vec::new(),
        scopes: vec!["read".parse().expect("a scope")],
    }
}

fn relation() -> Relation {
    Relation { namespace: "acme".into(), issuer: ISS.into() }
}

fn vouched(revision: u64) -> Vouched {
    let scopes = vec!["read".parse().expect("a scope")];
    Vouched { actor: "token:ada".into(), issuer: ISS.into(), revision, scopes, expires_at: at(1_000_000) }
}

/// What the catalog of `acme` does about a token.
fn asks(deployment: &mut World, acme: &mut World, ms: u64, revision: u64) -> Result<(), Code> {
    if !acme.catalog().trusts(&vouched(revision)) {
        let vouch = Input::Vouch { namespace: "acme".into(), issuer: ISS.into(), revision };
        deployment.drive(ms, vouch).map_err(|fault| match fault {
            Fault::Rejected(problem) => problem.code,
            other @ (Fault::Storage(_) | Fault::Moved(_)) => panic!("{other}"),
        })?;
        acme.must(ms, Input::Trust { issuer: ISS.into(), revision });
    }
    let (token, now) = (credential("token-1"), at(ms));
    let confirmed = acme.desk.confirm(&acme.rows, now, &token, Some(&vouched(revision)), "default-1-0");
    confirmed.map(drop).map_err(|_| Code::Unauthorized)
}

/// Whom the host tells: it goes by the latest order.
fn ordered(deployment: &mut World) -> Vec<Relation> {
    let orders = deployment.desk.take_orders().own.into_iter();
    let mut told =
        orders.filter_map(|order| if let Order::Distrust(over) = order { Some(over) } else { None });
    told.next_back().unwrap_or_default()
}

#[test]
fn the_word_of_an_issuer_that_nobody_set_counts_nothing() {
    let (mut deployment, mut acme) = (World::default(), World::default());
    assert_eq!(asks(&mut deployment, &mut acme, 0, 1), Err(Code::Unauthorized));
    let unasked =
        acme.desk.confirm(&acme.rows, at(0), &credential("token-1"), Some(&vouched(1)), "default-1-0");
    assert!(unasked.is_err(), "a catalog that has not asked goes by nobody's word");
}

#[test]
fn a_namespace_hears_of_an_issuers_end_and_its_cells_forget_the_tokens() {
    for change in [Input::RemoveIssuer { issuer: ISS.into() }, Input::SetIssuer(issuer("another"))] {
        let (mut deployment, mut acme) = (World::default(), World::default());
        deployment.must(0, Input::SetIssuer(issuer("stepwell")));
        assert_eq!(asks(&mut deployment, &mut acme, 1, 1), Ok(()));
        assert_eq!(
            asks(&mut deployment, &mut acme, 1, 7),
            Err(Code::Unauthorized),
            "it was never of that revision"
        );
        deployment.must(2, change);
        assert_eq!(ordered(&mut deployment), [relation()]);
        deployment.lose_memory();
        deployment.desk.alarm(&deployment.rows, at(2 + TELL_AGAIN_MS)).expect("it can be written");
        assert_eq!(ordered(&mut deployment), [relation()], "until it has been heard of");
        drop(acme.desk.take_orders());
        acme.must(3, Input::Distrust { issuer: ISS.into() });
        let told = acme.desk.take_orders().own;
        let forgets_all = |order: &Order| matches!(order, Order::Tell(words) if words.iter().all(|word| word.ids.is_none()));
        assert!(told.iter().any(forgets_all), "{told:?}");
        assert_eq!(asks(&mut deployment, &mut acme, 3, 1), Err(Code::Unauthorized));
        deployment.must(4, Input::NamespaceDistrusts(relation()));
        deployment.desk.alarm(&deployment.rows, at(9_000)).expect("it can be written");
        assert_eq!(ordered(&mut deployment), []);
        assert_eq!(
            asks(&mut deployment, &mut acme, 5, 1),
            Err(Code::Unauthorized),
            "the old word counts no more"
        );
    }
}

#[test]
fn a_namespace_that_has_not_heard_of_a_change_is_not_vouched_for() {
    let (mut deployment, mut acme) = (World::default(), World::default());
    deployment.must(0, Input::SetIssuer(issuer("stepwell")));
    assert_eq!(asks(&mut deployment, &mut acme, 1, 1), Ok(()));
    deployment.must(2, Input::RemoveIssuer { issuer: ISS.into() });
    deployment.lose_memory();
    deployment.must(3, Input::SetIssuer(issuer("stepwell")));
    let revision = deployment.catalog().issuers().next().expect("it was set").revision;
    assert_eq!(revision, 2, "a revision is never used again");
    assert_eq!(asks(&mut deployment, &mut acme, 4, 2), Err(Code::Unauthorized));
    acme.must(5, Input::Distrust { issuer: ISS.into() });
    deployment.must(5, Input::NamespaceDistrusts(relation()));
    assert_eq!(asks(&mut deployment, &mut acme, 6, 2), Ok(()));
    acme.lose_memory();
    assert!(acme.catalog().trusts(&vouched(2)) && !acme.catalog().trusts(&vouched(1)));
}
