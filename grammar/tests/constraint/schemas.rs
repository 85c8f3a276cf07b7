//! Texts under a JSON schema: whatever is drawn from the masks is valid under it.

use crate::walks::{
    FENCE, allowed, bytes, compile, grammars, is_end, matches, push_text, schema, token, walk,
};
use grammar::Form;
use rand::prelude::*;
use serde_json::Value;

const SCHEMAS: [&str; 13] = [
    r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},
        "required":["name","age"],"additionalProperties":false}"#,
    r#"{"enum":["red","green",7,null,{"a":[1]}]}"#,
    r#"{"type":"array","minItems":1,"maxItems":3,
        "items":{"type":"array","items":{"type":"boolean"},"maxItems":2}}"#,
    r##"{"$defs":{"node":{"type":"object","properties":{"v":{"type":"null"},
        "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
        "required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"}"##,
    r#"{"anyOf":[{"type":"string","maxLength":4},{"type":"integer","minimum":-5,"maximum":250},
        {"type":"object","properties":{"k":{"const":"x"}},"required":["k"]}]}"#,
    r#"{"type":"number","minimum":-1.5,"exclusiveMaximum":10.25}"#,
    r#"{"type":"integer","multipleOf":5,"minimum":10,"maximum":95}"#,
    r#"{"type":"string","pattern":"^[a-c]{2,4}-[0-9]+(č|日)$"}"#,
    r#"{"type":"object","properties":{"s":{"type":"string","minLength":2,"maxLength":5},
        "t":{"type":"array","prefixItems":[{"type":"null"},{"type":"integer","minimum":0}],
        "minItems":2,"items":false}},"required":["s","t"]}"#,
    r#"{"type":"object","patternProperties":{"^x":{"type":"boolean"}},
        "properties":{"y":{"type":"number"}},"additionalProperties":false}"#,
    r##"{"type":"object","properties":{"shape":{"oneOf":[
        {"type":"object","properties":{"kind":{"const":"disc"},"r":{"type":"number"}},
         "required":["kind","r"],"additionalProperties":false},
        {"type":"object","properties":{"kind":{"const":"box"},"w":{"type":"integer"}},
         "required":["kind","w"],"additionalProperties":false}]}},"required":["shape"]}"##,
    r#"{"type":["string","null"],"format":"date"}"#,
    r#"{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
        {"properties":{"a":{"maximum":3}}}]}"#,
];

#[test]
fn every_walk_over_the_masks_is_valid_under_the_schema() {
    for source in SCHEMAS {
        let parsed: Value = serde_json::from_str(source).unwrap();
        let validator = jsonschema::validator_for(&parsed).unwrap();
        for seed in 0..60 {
            let context = format!("seed {seed}, schema {source}");
            let mut rng = StdRng::seed_from_u64(seed);
            let text = bytes(&walk(&mut *compile(&schema(source)), &mut rng));
            let text = String::from_utf8(text).expect(&context);
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{context}: {error}: {text}"));
            assert!(validator.is_valid(&value), "{context}: {text}");
        }
    }
}

#[test]
fn any_object_is_an_object() {
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let text = bytes(&walk(&mut *compile(&Form::JsonObject), &mut rng));
        let value: Value = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}: {text:?}"));
        assert!(value.is_object(), "seed {seed}: {value}");
    }
    assert!(!matches(&Form::JsonObject, "[]"));
    assert!(!matches(&Form::JsonObject, "{\"a\":1"));
}

#[test]
fn a_fence_before_the_document_is_forbidden_as_text_and_as_a_token() {
    for form in [Form::JsonObject, schema(SCHEMAS[0])] {
        let mut constraint = compile(&form);
        let allowed = allowed(&mut *constraint);
        assert!(!allowed.contains(&FENCE) && !allowed.contains(&u32::from(b'`')));
        assert!(!constraint.push(FENCE) && !constraint.push(u32::from(b'`')));
        assert!(push_text(&mut *constraint, "{"));
    }
}

#[test]
fn common_layouts_can_be_written_and_endless_space_cannot() {
    let form = schema(SCHEMAS[0]);
    for text in [
        r#"{"name":"a","age":1}"#,
        r#"{"name": "a", "age": 1}"#,
        r#"{ "name": "a", "age": 1 }"#,
        "{\n  \"name\": \"a\",\n  \"age\": 1\n}",
        "{\r\n\t\"name\": \"a\",\r\n\t\"age\": 1\r\n}",
    ] {
        assert!(matches(&form, text), "{text}");
    }
    for text in ["{  ", "{\n\n", "{ \n", "{\"name\":  "] {
        let mut constraint = compile(&form);
        assert!(!push_text(&mut *constraint, text), "{text:?}");
    }
    let mut constraint = compile(&form);
    assert!(push_text(&mut *constraint, "{\n"));
    let blanks = (0..1000)
        .take_while(|_| constraint.push(b' '.into()))
        .count();
    assert_eq!(blanks, 64);
    // Nor can a schema ask for it in the library's own words.
    let flexible = r#"{"type":"object","x-guidance":{"whitespace_flexible":true}}"#;
    assert!(!push_text(&mut *compile(&schema(flexible)), "{\n\n"));
}

#[test]
fn characters_split_over_tokens_stay_whole() {
    let form = schema(r#"{"type":"string","maxLength":3}"#);
    for text in ["\"č日🙂\"", "\"ěšč\"", "\"漢字\"", "\"👩🏽\""] {
        assert!(matches(&form, text), "{text}");
    }
    assert!(!matches(&form, "\"čččč\""), "maxLength counts characters");
    let mut constraint = compile(&form);
    assert!(push_text(&mut *constraint, "\""));
    // The first two bytes of 日 in one token, and nothing but a continuation after it.
    assert!(constraint.push(token(&[0xe6, 0x97])));
    let next = allowed(&mut *constraint);
    assert!(
        next.iter()
            .all(|&id| (0x80..0xc0).contains(&bytes(&[id])[0]))
    );
    assert!(next.contains(&0xa5) && next.contains(&0x80));
    // The last byte of one character and what follows it, in one token.
    let mut constraint = compile(&form);
    for piece in [&b"\""[..], &[0xf0, 0x9f, 0x99], &[0x82, b'"']] {
        assert!(constraint.push(token(piece)), "{piece:?}");
    }
    assert!(allowed(&mut *constraint).iter().all(|&id| is_end(id)));
}

#[test]
fn strings_of_walks_hold_more_than_one_byte_characters() {
    let mut wide = 0;
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let text = walk(&mut *compile(&schema(r#"{"type":"string"}"#)), &mut rng);
        let text = String::from_utf8(bytes(&text)).unwrap_or_else(|_| panic!("seed {seed}"));
        wide += text.chars().filter(|c| c.len_utf8() > 1).count();
    }
    assert!(wide > 100, "{wide} characters");
}

#[test]
fn a_boolean_is_a_schema() {
    assert!(matches(&schema("true"), "[1, \"a\"]"));
    let error = grammars().compile(&schema("false")).unwrap_err();
    assert_eq!(error.to_string(), "json_schema: false allows no document");
}
