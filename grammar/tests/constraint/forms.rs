//! Regular expressions, grammars, and sources that are refused.

use crate::walks::{
    ENDS, SIZE, START, allowed, bytes, compile, is_end, matches, may_end, push_text, refusal,
    schema, token, walk,
};
use grammar::{Form, MAX_SOURCE_LEN};
use rand::prelude::*;
use speculation::TokenId;

fn regex(source: &str) -> Form {
    Form::Regex(source.to_owned())
}

fn lark(source: &str) -> Form {
    Form::Lark(source.to_owned())
}

#[test]
fn a_regex_holds_for_the_whole_text() {
    let cases: [(&str, &[&str], &[&str]); 9] = [
        ("ab|cd", &["ab", "cd"], &["a", "abd", "acd", "abcd", "xab"]),
        ("^ab|cd$", &["ab", "cd"], &["abd", "acd"]),
        ("[0-9]{2,3}", &["12", "123"], &["1", "1234", "1a"]),
        ("a*", &["", "a", "aaaa"], &["b", "ab"]),
        ("(?i)true", &["true", "TrUe"], &["tru"]),
        ("a/b\\/c", &["a/b/c"], &["a\\/b/c"]),
        ("\\d+\\$", &["7$"], &["7", "$"]),
        ("č.日", &["čx日", "č🙂日"], &["č日", "cx日"]),
        ("a\nb\\n\\\\", &["a\nb\n\\"], &["a\\nb\n\\", "anb"]),
    ];
    for (source, good, bad) in cases {
        for text in good {
            assert!(matches(&regex(source), text), "{source:?} on {text:?}");
        }
        for text in bad {
            assert!(!matches(&regex(source), text), "{source:?} on {text:?}");
        }
    }
}

#[test]
fn walks_match_the_regex() {
    let form = regex("(ab|č)+[0-9]{1,3}(\\.5)?");
    for seed in 0..100 {
        let text = bytes(&walk(
            &mut *compile(&form),
            &mut StdRng::seed_from_u64(seed),
        ));
        let text = String::from_utf8(text).unwrap();
        let digits = text.replace("ab", "").replace('č', "");
        let whole = digits.strip_suffix(".5").unwrap_or(&digits);
        assert!(
            text.ends_with(&digits)
                && digits.len() < text.len()
                && (1..=3).contains(&whole.len())
                && whole.bytes().all(|byte| byte.is_ascii_digit()),
            "seed {seed}: {text}"
        );
    }
}

const SUMS: &str = r#"
start: sum
sum: term ("+" term)*
term: NUMBER | "(" sum ")"
NUMBER: /0|[1-9][0-9]{0,2}/
"#;

#[test]
fn walks_match_the_grammar() {
    for text in ["1", "(12+(3))+0"] {
        assert!(matches(&lark(SUMS), text), "{text}");
    }
    for text in ["", "01", "(1", "1+", "1)", "1234", "1 + 2"] {
        assert!(!matches(&lark(SUMS), text), "{text}");
    }
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut constraint = compile(&lark(SUMS));
        let mut depth = 0_i32;
        let mut text = Vec::new();
        // Closes what is open once the text is long.
        while !(text.len() > 40 && may_end(&mut *constraint)) {
            let mut allowed = allowed(&mut *constraint);
            allowed.retain(|&id| !is_end(id) && (text.len() < 30 || id != u32::from(b'(')));
            let closing = token(b")");
            let closes = text.len() >= 30 && allowed.contains(&closing);
            let next = if closes {
                closing
            } else {
                *allowed.choose(&mut rng).unwrap()
            };
            assert!(constraint.push(next), "seed {seed}");
            for byte in bytes(&[next]) {
                depth += i32::from(byte == b'(') - i32::from(byte == b')');
                assert!(
                    depth >= 0 && b"+()0123456789".contains(&byte),
                    "seed {seed}"
                );
                text.push(byte);
            }
        }
        assert_eq!(depth, 0, "seed {seed}: {}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn special_tokens_are_allowed_where_the_grammar_names_them() {
    let mut constraint = compile(&lark("start: \"a\" <|im_start|> \"b\""));
    assert!(!constraint.push(START));
    assert!(constraint.push(token(b"a")));
    assert_eq!(allowed(&mut *constraint), [START]);
    assert!(
        !push_text(&mut *constraint, "<|im_start|>"),
        "it is not its name"
    );
    assert!(constraint.push(START) && constraint.push(token(b"b")));
    assert_eq!(allowed(&mut *constraint), ENDS);
    // Elsewhere never, not even where any text is.
    assert!(!allowed(&mut *compile(&regex("(?s).*"))).contains(&START));
}

#[test]
fn end_tokens_end_the_text_whatever_the_grammar_says_of_tokens() {
    let mut constraint = compile(&lark("start: <[*]> \"b\""));
    let ids = allowed(&mut *constraint);
    assert!(ids.iter().all(|&id| !is_end(id) && (id as usize) < SIZE));
    assert!(ids.contains(&START));
    assert!(ENDS.iter().all(|&end| !constraint.push(end)));
    let unknown = refusal(&lark("start: \"a\" <|im_end|>"));
    assert_eq!(
        unknown,
        "lark: at 1(8): unknown special token: \"<|im_end|>\""
    );
}

#[test]
fn a_wrong_source_is_refused_in_one_line_that_says_why() {
    let cases = [
        (schema(""), "json_schema: is empty"),
        (
            schema("{\"type\":"),
            "json_schema: is not valid JSON: EOF while parsing",
        ),
        (
            schema("[]"),
            "json_schema: is neither an object nor a boolean",
        ),
        (
            schema(r#"{"type":"text"}"#),
            "json_schema: Invalid type: text",
        ),
        (
            schema(r#"{"not":{}}"#),
            "json_schema: Unimplemented keys: [\"not\"]",
        ),
        (
            schema(r##"{"$ref":"#/$defs/x"}"##),
            "json_schema: Pointer '/$defs/x' does not exist",
        ),
        (
            schema(r#"{"$ref":"https://a.example/b"}"#),
            "json_schema: Resource 'https://a.example",
        ),
        (
            schema(r#"{"type":"integer","minimum":2,"maximum":1}"#),
            "json_schema: Unsatisfiable",
        ),
        (
            schema(r#"{"pattern":"("}"#),
            "json_schema: invalid regular expression: unclosed group",
        ),
        (
            schema(r#"{"oneOf":[{"type":"number"},{"type":"integer"}]}"#),
            "json_schema: oneOf is supported only where the alternatives cannot overlap; use anyOf",
        ),
        (regex(" "), "regex: is empty"),
        (regex("^$"), "regex: is empty"),
        (
            regex("a)(b"),
            "regex: at 1(8): invalid regular expression: unopened group",
        ),
        (
            regex("a\\"),
            "regex: ends in a backslash that escapes nothing",
        ),
        (
            regex("a(?=b)"),
            "regex: at 1(8): invalid regular expression: look-around",
        ),
        (
            regex(&"a?".repeat(10_000)),
            "regex: too many parts in a row that may be left out",
        ),
        (lark("\n"), "lark: is empty"),
        (lark("start: \"a"), "lark: 1(10): lexer error"),
        (lark("start: b"), "lark: at 1(8): unknown name: \"b\""),
        (lark("begin: \"a\""), "lark: no start rule found"),
        (
            lark("start: a\na[stop=\"x\"]: /.*/"),
            "lark: stop= and max_tokens= are not supported",
        ),
    ];
    for (form, reason) in cases {
        let error = refusal(&form);
        assert!(error.starts_with(reason), "{error}");
        assert!(
            !error.contains('\n') && error.chars().count() < 350,
            "{error}"
        );
    }
}

#[test]
fn a_long_source_is_refused_unread_and_a_deep_one_without_a_crash() {
    for form in [regex, lark, schema] {
        let error = refusal(&form(&"a".repeat(2 * MAX_SOURCE_LEN)));
        assert!(
            error.ends_with("has 2097152 bytes, at most 1048576 are allowed"),
            "{error}"
        );
    }
    for deep in [
        lark(&format!("start: {}\"a\"", "(".repeat(500_000))),
        regex(&"(".repeat(500_000)),
        schema(&"{\"items\":".repeat(100_000)),
    ] {
        assert!(refusal(&deep).chars().count() < 350);
    }
    // Each rule leads to the next.
    let rules = (0..75_000).map(|rule| format!("r{rule:x}:r{:x}\n", rule + 1));
    let chain = format!("start:r0\n{}r124f8:\"a\"\n", rules.collect::<String>());
    assert!(matches(&lark(&chain), "a"));
    let ids: Vec<TokenId> = allowed(&mut *compile(&lark("start: \"a\"")));
    assert_eq!(ids, [token(b"a")]);
}
