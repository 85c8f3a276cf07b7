//! Pushing, popping and ending.

use crate::walks::{
    ENDS, LOGITS, SIZE, UNUSED, allowed, bytes, compile, grammars, is_end, matches, push_text,
    schema, token, walk,
};
use grammar::{Form, Grammars, Token};
use rand::prelude::*;
use speculation::{Constraint, TokenId};

fn forms() -> Vec<Form> {
    let lark = r#"
start: list | <|im_start|> pair
list: "[" [item ("," " "? item)*] "]"
item: WORD | list | pair
pair: "(" item ":" item ")"
WORD: /[a-c]+/ | /[0-9]{1,3}/
"#;
    let object = r##"{"$defs":{"n":{"type":"object","properties":{"a":{"type":"string"},
        "ab":{"type":"array","items":{"$ref":"#/$defs/n"}},"abc":{"type":"number"}}}},
        "$ref":"#/$defs/n"}"##;
    vec![
        Form::JsonObject,
        schema(object),
        schema(r#"{"anyOf":[{"enum":["ab","abc",12]},{"type":"array"}]}"#),
        Form::Regex("(a|b)*č?[0-9]{0,3}".to_owned()),
        Form::Lark(lark.to_owned()),
    ]
}

#[test]
fn a_fork_and_what_it_was_forked_from_go_on_by_themselves() {
    for form in forms() {
        for seed in 0..6 {
            let context = format!("seed {seed}, {form:?}");
            let mut rng = StdRng::seed_from_u64(seed);
            let text = walk(&mut *compile(&form), &mut rng);
            let at = rng.random_range(0..text.len());
            let mut first = compile(&form);
            assert!(
                text[..at].iter().all(|&token| first.push(token)),
                "{context}"
            );
            let mut fork = first.fork().expect("grammars fork");
            // Each writes another text, in turn with the other's masks.
            let mut alone = compile(&form);
            assert!(
                text[..at].iter().all(|&token| alone.push(token)),
                "{context}"
            );
            let others = walk(&mut *fork, &mut rng);
            for &token in &text[at..] {
                assert_eq!(allowed(&mut *first), allowed(&mut *alone), "{context}");
                assert!(first.push(token) && alone.push(token), "{context}");
            }
            fork.pop(others.len());
            first.pop(text.len() - at);
            assert_eq!(allowed(&mut *fork), allowed(&mut *first), "{context}");
        }
    }
}

#[test]
fn after_any_pushes_and_pops_all_is_as_if_the_tokens_were_new() {
    for form in forms() {
        for seed in 0..10 {
            let context = format!("seed {seed}, {form:?}");
            let mut rng = StdRng::seed_from_u64(seed);
            let mut constraint = compile(&form);
            let mut tokens: Vec<TokenId> = Vec::new();
            for _ in 0..40 {
                if rng.random_bool(0.3) {
                    let count = rng.random_range(0..=tokens.len().min(6));
                    constraint.pop(count);
                    tokens.truncate(tokens.len() - count);
                } else {
                    let allowed = allowed(&mut *constraint);
                    let token = if rng.random_bool(0.8) {
                        *allowed.choose(&mut rng).unwrap()
                    } else {
                        rng.random_range(0..LOGITS as TokenId)
                    };
                    let ended = tokens.last().is_some_and(|&last| is_end(last));
                    let pushed = constraint.push(token);
                    assert_eq!(pushed, allowed.contains(&token) && !ended, "{context}");
                    tokens.extend(pushed.then_some(token));
                }
                let mut fresh = compile(&form);
                assert!(tokens.iter().all(|&token| fresh.push(token)), "{context}");
                assert_eq!(
                    allowed(&mut *constraint),
                    allowed(&mut *fresh),
                    "{context}: {:?}",
                    String::from_utf8_lossy(&bytes(&tokens))
                );
            }
        }
    }
}

#[test]
fn what_the_mask_allows_can_be_pushed_and_nothing_else() {
    for form in forms() {
        let mut rng = StdRng::seed_from_u64(5);
        let path = walk(&mut *compile(&form), &mut rng);
        let mut constraint = compile(&form);
        for &token in path.iter().take(25) {
            let allowed = allowed(&mut *constraint);
            for id in (0..LOGITS as TokenId).chain([u32::MAX]) {
                let pushed = constraint.push(id);
                assert_eq!(pushed, allowed.contains(&id), "{form:?}: {id}");
                constraint.pop(usize::from(pushed));
            }
            if is_end(token) {
                break;
            }
            assert!(constraint.push(token), "{form:?}");
        }
    }
}

#[test]
fn all_end_tokens_are_allowed_where_the_text_may_end_and_there_only() {
    let mut constraint = compile(&Form::Regex("ab(ab)?".to_owned()));
    for (text, may_end, may_go_on) in [("a", false, true), ("b", true, true), ("ab", true, false)] {
        assert!(push_text(&mut *constraint, text));
        let ids = allowed(&mut *constraint);
        let ends: Vec<TokenId> = ids.iter().copied().filter(|&id| is_end(id)).collect();
        let expected = if may_end { &ENDS[..] } else { &[] };
        assert_eq!(ends, expected, "after {text}");
        assert_eq!(ids.len() > ends.len(), may_go_on, "after {text}");
        for end in ENDS {
            assert_eq!(constraint.push(end), may_end, "after {text}");
            constraint.pop(usize::from(may_end));
        }
    }
}

#[test]
fn nothing_follows_an_end_token_until_it_is_taken_back() {
    for end in ENDS {
        let mut constraint = compile(&Form::Regex("a+".to_owned()));
        assert!(constraint.push(token(b"a")) && constraint.push(token(b"a")));
        let before = allowed(&mut *constraint);
        assert!(constraint.push(end));
        assert_eq!(allowed(&mut *constraint), ENDS, "each position has a law");
        assert!(!constraint.push(token(b"a")) && !constraint.push(end));
        constraint.pop(1);
        assert_eq!(allowed(&mut *constraint), before);
        assert!(constraint.push(end));
        constraint.pop(2);
        assert_eq!(allowed(&mut *constraint), before, "still after one a");
        constraint.pop(100);
        assert!(!allowed(&mut *constraint).contains(&end), "it needs an a");
    }
}

#[test]
fn ids_that_stand_for_nothing_and_rows_beyond_the_tokens_are_forbidden() {
    let anything = Form::Regex("(?s).*".to_owned());
    let ids = allowed(&mut *compile(&anything));
    assert!(ids.contains(&token(b"```json")));
    assert!(
        !ids.contains(&UNUSED) && !ids.contains(&0xff),
        "no text has the byte FF"
    );
    assert!(ids.iter().all(|&id| (id as usize) < SIZE));
    // Logits of fewer tokens are masked as far as they go.
    let mut few = vec![1.0; 100];
    compile(&Form::Regex("a".to_owned()))
        .mask(&mut few)
        .unwrap();
    let kept: Vec<usize> = (0..100).filter(|&id| few[id] > f32::NEG_INFINITY).collect();
    assert_eq!(kept, [usize::from(b'a')]);
}

#[test]
fn work_beyond_the_limits_is_an_error_of_the_mask_and_leaves_the_others_alone() {
    let doubled = (0..10).map(|depth| format!("T{depth}: T{0} T{0}\n", depth + 1));
    let doubled: String = doubled.collect();
    let form = Form::Lark(format!("start: T0\n{doubled}T10: \"a\"?\n"));
    let mut constraint = compile(&form);
    let mut logits = vec![0.0; LOGITS];
    constraint.mask(&mut logits).unwrap();
    assert!(constraint.push(token(b"a")));
    let error = constraint.mask(&mut logits).unwrap_err().to_string();
    assert!(
        error.starts_with("structured output: ") && !error.contains('\n'),
        "{error}"
    );
    assert!(!constraint.push(token(b"a")) && !constraint.push(ENDS[0]));
    constraint.pop(1);
    assert!(matches(&Form::Regex("a".to_owned()), "a"));
}

#[test]
fn a_mask_does_not_outlast_the_token_that_it_was_for() {
    // After either letter comes a 1, and after that what depends on the letter.
    let source = "start: \"a\" \"1\" \"2\" | \"b\" \"1\" \"3\"";
    let mut constraint = compile(&Form::Lark(source.to_owned()));
    assert!(constraint.push(token(b"a")));
    assert_eq!(allowed(&mut *constraint), [token(b"1"), token(b"12")]);
    constraint.pop(1);
    assert!(constraint.push(token(b"b")));
    assert_eq!(allowed(&mut *constraint), [token(b"1")]);
}

#[test]
fn a_position_that_no_token_fits_is_an_error_until_it_is_taken_back() {
    let tokens = [&b"a"[..], b"b", b""].map(|text| Token::Text(text.to_vec()));
    let grammars = Grammars::new(tokens.to_vec(), &[2]).unwrap();
    let form = Form::Regex("a(c|bb)|bc".to_owned());
    let mut constraint = grammars.compile(&form).unwrap();
    assert!(constraint.push(1));
    let error = constraint.mask(&mut [0.0; 3]).unwrap_err();
    let reason = "structured output: no token of the model can follow";
    assert_eq!(error.to_string(), reason);
    assert!(!constraint.push(0) && !constraint.push(2));
    constraint.pop(1);
    for (token, expected) in [
        (0, [0.0, 0.0, 1.0]),
        (1, [1.0, 0.0, 1.0]),
        (1, [1.0, 0.0, 1.0]),
    ] {
        let mut logits = [0.0_f32; 3];
        constraint.mask(&mut logits).unwrap();
        assert!(constraint.push(token), "{expected:?}");
        assert_eq!(
            logits.map(|logit| f32::from(u8::from(logit < 0.0))),
            expected
        );
    }
    let mut logits = [0.0_f32; 3];
    constraint.mask(&mut logits).unwrap();
    assert_eq!(logits, [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0]);
}

#[test]
fn grammars_are_shared_between_threads_and_constraints_move_to_them() {
    let grammars = grammars();
    let texts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let walks: Vec<_> = (0..4)
            .map(|_| {
                let grammars = grammars.clone();
                let mut constraint: Box<dyn Constraint> =
                    grammars.compile(&Form::JsonObject).unwrap();
                scope.spawn(move || bytes(&walk(&mut *constraint, &mut StdRng::seed_from_u64(3))))
            })
            .collect();
        walks.into_iter().map(|walk| walk.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|text| *text == texts[0]));
    let debug = format!("{grammars:?} {:?}", compile(&Form::JsonObject));
    assert!(debug.len() < 200, "{debug}");
}
