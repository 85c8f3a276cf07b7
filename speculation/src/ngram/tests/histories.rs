use super::*;

/// A recall of `tenant` after `text`.
fn after(tenant: &str, text: &[TokenId]) -> Recall {
    Recall::new(tenant, text)
}

fn ids(recall: &Recall, histories: &Histories) -> Vec<TokenId> {
    recall
        .propose(16, histories)
        .map_or(Vec::new(), |draft| draft.ids)
}

#[test]
fn an_output_is_proposed_again_to_its_tenant_and_to_no_other() {
    let mut histories = Histories::new(1000, 4);
    histories.add("a", &[1, 2, 3, 4, 5]);
    histories.add("", &[1, 2, 7]);
    assert_eq!(ids(&after("a", &[9, 1, 2]), &histories)[..1], [3]);
    assert_eq!(ids(&after("", &[9, 1, 2]), &histories)[..1], [7]);
    for other in ["b", "A", "a "] {
        assert_eq!(ids(&after(other, &[9, 1, 2]), &histories), []);
    }
}

#[test]
fn a_proposal_ends_with_the_output_that_it_comes_from() {
    let mut histories = Histories::new(1000, 4);
    for _ in 0..3 {
        histories.add("a", &[1, 2, 3]);
        histories.add("a", &[4, 5, 6]);
    }
    assert_eq!(ids(&after("a", &[1, 2]), &histories), [3]);
    assert_eq!(ids(&after("a", &[2, 3]), &histories), []);
}

#[test]
fn a_tenant_keeps_so_many_tokens_at_most_and_at_least_half_of_them() {
    let bound = 100;
    let mut histories = Histories::new(bound, 4);
    let output = |number: TokenId| -> Vec<TokenId> { (number * 10..number * 10 + 9).collect() };
    for number in 0..50 {
        histories.add("a", &output(number));
        let kept = histories.tokens("a");
        assert!(kept <= bound, "{kept} tokens are kept");
        assert!(number < 10 || kept >= bound / 2, "{kept} tokens are kept");
    }
    assert_eq!(ids(&after("a", &output(49)[..3]), &histories)[0], 493);
    assert_eq!(ids(&after("a", &output(42)[..3]), &histories)[0], 423);
    assert_eq!(ids(&after("a", &output(30)[..3]), &histories), []);
    // Of one that is too long the end is kept.
    histories.add("a", &(10_000..11_000).collect::<Vec<_>>());
    assert!(histories.tokens("a") <= bound);
    assert_eq!(ids(&after("a", &[10_948, 10_949, 10_950]), &histories), []);
    assert_eq!(
        ids(&after("a", &[10_990, 10_991, 10_992]), &histories)[0],
        10_993
    );
}

#[test]
fn of_too_many_tenants_the_one_unheard_of_for_longest_is_forgotten() {
    let mut histories = Histories::new(100, 2);
    for tenant in ["a", "b", "a", "c"] {
        histories.add(tenant, &[1, 2, 3, 4]);
    }
    let known = ["a", "b", "c"].map(|tenant| !ids(&after(tenant, &[1, 2]), &histories).is_empty());
    assert_eq!(known, [true, false, true]);
}

#[test]
fn nothing_is_kept_where_that_is_asked_for() {
    for (tokens, tenants) in [(0, 4), (1, 4), (100, 0)] {
        let mut histories = Histories::new(tokens, tenants);
        histories.add("a", &[1, 2, 3]);
        assert_eq!(ids(&after("a", &[1, 2]), &histories), []);
    }
}

#[test]
fn a_recall_follows_its_text_and_learns_what_the_history_is_worth() {
    let mut histories = Histories::new(10_000, 1);
    let past: Vec<TokenId> = (0..200).collect();
    histories.add("a", &past);
    let (mut again, mut other) = (after("a", &[500]), after("a", &[500]));
    for token in &past[..100] {
        again.push(*token, &histories);
        other.push(*token, &histories);
        other.push(1000 + token, &histories);
    }
    let draft = again.propose(16, &histories).unwrap();
    assert_eq!(draft.ids, past[100..116]);
    assert!(draft.survival[15] > 0.5, "{draft:?}");
    other.push(100, &histories);
    let survival = |recall: &Recall| {
        recall
            .propose(1, &histories)
            .map_or(0.0, |draft| draft.survival[0])
    };
    let mut fresh = after("a", &[500]);
    fresh.push(100, &histories);
    assert!(
        survival(&other) < survival(&fresh),
        "{} {}",
        survival(&other),
        survival(&fresh)
    );
}
