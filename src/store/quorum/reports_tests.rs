use super::*;
use crate::store::diagnosis::ServerFacts;
use crate::store::{StoreError, StoreErrorKind};

fn nodes(count: usize) -> Nodes {
    Nodes { names: (0..count).map(|node| format!("n{node}").into()).collect() }
}

/// Returns the answer of a node without faults, whose server has this `run_id`.
fn server(node: usize, run_id: Option<&str>) -> Answer {
    let facts =
        ServerFacts { notices: true, run_id: run_id.map(ToOwned::to_owned), ..ServerFacts::default() };
    let report = Report::new(format!("n{node}"), Facts::Server(Box::new(facts)), Ttl::MAX, false);
    Ok(Reply::Diagnosed(vec![report]))
}

fn gone() -> Answer {
    Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))
}

/// The store, level, code and message of a finding.
type Found = (String, Level, &'static str, String);

/// Returns the findings about nodes with these answers.
fn found(answers: Vec<Answer>) -> Vec<Found> {
    let votes: Vec<_> = answers.into_iter().map(Some).collect();
    let all = reports(&nodes(votes.len()), &votes, Ttl::MAX);
    assert_eq!(all.len(), votes.len());
    all.into_iter()
        .flat_map(|Report { store, findings, .. }| {
            findings
                .into_iter()
                .map(move |Finding { level, code, message }| (store.to_string(), level, code, message))
        })
        .collect()
}

/// Returns the answers of `count` nodes, of which the last `failing` ones fail.
fn failing(failing: usize, count: usize) -> Vec<Answer> {
    let ids: Vec<String> = (0..count).map(|node| format!("id{node}")).collect();
    let answer = |node: usize| if node + failing < count { server(node, Some(&ids[node])) } else { gone() };
    (0..count).map(answer).collect()
}

fn codes(found: &[Found]) -> Vec<(&str, Level, &'static str)> {
    found.iter().map(|(store, level, code, _)| (&**store, *level, *code)).collect()
}

#[test]
fn sound_nodes_of_their_own_are_nothing_to_tell_of() {
    assert_eq!(found(failing(0, 3)), []);
    assert_eq!(found(failing(0, 5)), []);
}

#[test]
fn a_node_that_can_not_be_used_is_an_error_only_where_no_quorum_is_left() {
    for (missing, count, level) in
        [(1, 3, Level::Warning), (2, 3, Level::Error), (2, 5, Level::Warning), (3, 5, Level::Error)]
    {
        let levels: Vec<Level> = found(failing(missing, count))
            .into_iter()
            .filter(|(_, _, code, _)| *code == "unreachable")
            .map(|(_, level, ..)| level)
            .collect();
        assert_eq!(levels, vec![level; missing], "{missing} of {count}");
    }
}

#[test]
fn a_bare_majority_is_told_and_no_more_and_no_less() {
    for (missing, count, is_bare) in
        [(1, 3, true), (2, 3, false), (1, 5, false), (2, 5, true), (1, 4, true), (2, 4, false)]
    {
        let found = found(failing(missing, count));
        let told: Vec<_> = found.iter().filter(|(_, _, code, _)| *code == "bare-majority").collect();
        assert_eq!(!told.is_empty(), is_bare, "{missing} of {count}: {found:?}");
        for (store, level, _, message) in told {
            assert_eq!((&**store, *level), ("n0", Level::Warning), "it is said once, of the first");
            let left = format!("only {} of the quorum's {count} nodes", count - missing);
            assert!(message.starts_with(&left), "{message}");
            for node in count - missing..count {
                assert!(message.contains(&format!("n{node}")), "{message}");
            }
        }
    }
}

#[test]
fn an_even_number_of_nodes_is_one_too_few_or_one_too_many() {
    assert_eq!(codes(&found(failing(0, 4))), [("n0", Level::Warning, "even")]);
}

#[test]
fn two_nodes_that_are_one_server_are_an_error_that_nothing_forgives() {
    let ids = [Some("a"), Some("b"), Some("a")];
    let told = found(ids.iter().enumerate().map(|(node, id)| server(node, *id)).collect());
    assert_eq!(codes(&told), [("n2", Level::Error, "same-server")]);
    assert!(told[0].3.starts_with("two nodes, n0 and n2, are one and the same server"), "{}", told[0].3);
    // Each further twin gets the error, even if another node fails for another reason.
    let told = found(vec![
        server(0, Some("a")),
        server(1, Some("a")),
        server(2, Some("a")),
        server(3, Some("b")),
        gone(),
    ]);
    let errors: Vec<_> = codes(&told).into_iter().filter(|(_, level, _)| *level == Level::Error).collect();
    assert_eq!(errors, [("n1", Level::Error, "same-server"), ("n2", Level::Error, "same-server")]);
    assert!(codes(&told).contains(&("n4", Level::Warning, "unreachable")), "{told:?}");
    assert_eq!(
        found(vec![server(0, None), server(1, None), server(2, None)]),
        [],
        "they do not say who they are"
    );
}

#[test]
fn a_node_that_works_and_lacks_leases_is_told_of() {
    let nodes = nodes(3);
    let votes = [server(0, None), server(1, None), gone()].map(Some);
    let mut all = reports(&nodes, &votes, Ttl::MAX);
    missing_leases(&nodes, &[0, 2, 2], 7, &mut all);
    let told = |report: &Report| report.findings.iter().any(|found| found.code == "missing-leases");
    assert_eq!(
        all.iter().map(told).collect::<Vec<_>>(),
        [false, true, false],
        "the third has its own finding"
    );
    let found = all[1].findings.iter().find(|found| found.code == "missing-leases").unwrap();
    assert_eq!(found.level, Level::Warning);
    assert!(found.message.starts_with("2 of the 7 leases"), "{}", found.message);
}
