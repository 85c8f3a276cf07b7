//! Structured output: what is finished is valid, what is cut off could have become so, and drafts
//! change nothing.

use anyhow::{Context as _, Result};
use grammar::Grammars;
use proto::v1::structured_output::Form;
use proto::v1::{FinishReason, GenerateRequest, SamplingParams};
use serde_json::{Value, json};
use specdec_tests::drafts::{Agreement, TinyCluster, byte_token};
use specdec_tests::{Answer, Client, Oracle, Prompting, text_prompt};

const TOKENS: u32 = 400;

/// The tiny models' own end of a text.
const END: u32 = 306;

/// Schemas whose documents are short.
fn schemas() -> [Value; 8] {
    let object = |properties: Value, required: &[&str]| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false
        })
    };
    [
        object(
            json!({"name": {"type": "string", "maxLength": 8},
                   "age": {"type": "integer", "minimum": 0, "maximum": 130}}),
            &["name", "age"],
        ),
        json!({"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4}),
        object(
            json!({"inner": object(json!({"ok": {"type": "boolean"}, "no": {"type": "null"}}), &["ok"])}),
            &["inner"],
        ),
        json!({"anyOf": [{"const": "only this"}, {"type": "integer", "minimum": -99, "maximum": 99}]}),
        json!({"type": "string", "pattern": "^[a-f0-9]{4}-[0-9]{2}$"}),
        json!({"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": [1, "dva", null]}],
               "items": false, "minItems": 2}),
        object(
            json!({"code": {"type": "string", "minLength": 3, "maxLength": 6},
                   "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2}}),
            &["code"],
        ),
        json!({"$defs": {"leaf": {"enum": ["č", "日本", "🐴"]}},
               "type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 1, "maxItems": 3}),
    ]
}

fn request(form: Form, seed: u64) -> GenerateRequest {
    text_prompt("Answer in JSON:")
        .sampling(SamplingParams::default())
        .seed(seed)
        .at_most(TOKENS)
        .structured(form)
}

fn schema_request(schema: &Value, seed: u64) -> GenerateRequest {
    request(Form::JsonSchema(schema.to_string()), seed)
}

/// A text that ended is valid under `schema`, any other is the beginning of one that is.
fn check_json(oracle: &Oracle, schema: &Value, answer: &Answer) -> Result<()> {
    let form = grammar::Form::JsonSchema(schema.to_string());
    if !is_finished(oracle, form, answer)? {
        return Ok(());
    }
    let text = &answer.text;
    let document: Value = serde_json::from_str(text).context(format!("{text:?}"))?;
    let validator = jsonschema::validator_for(schema)?;
    assert!(validator.is_valid(&document), "{text:?} under {schema}");
    Ok(())
}

/// True where the text ended by itself. Either way a fresh grammar takes each of its tokens.
fn is_finished(oracle: &Oracle, form: grammar::Form, answer: &Answer) -> Result<bool> {
    let vocabulary = oracle.vocabulary();
    let grammars = Grammars::from_tokenizer_json(
        &vocabulary.tokenizer_json,
        vocabulary.size,
        &vocabulary.eos_ids,
    )?;
    let mut constraint = grammars.compile(&form)?;
    for (index, id) in answer.ids.iter().enumerate() {
        assert!(constraint.push(*id), "token {index} of {:?}", answer.text);
    }
    let finished = answer.reason == FinishReason::Stop;
    assert!(
        finished || answer.ids.len() == TOKENS as usize,
        "{answer:?}"
    );
    Ok(finished)
}

fn backticks(request: GenerateRequest) -> GenerateRequest {
    request.choosing(|s| _ = s.logit_bias.insert(byte_token(b'`'), 60.0))
}

/// Sixteen requests at once, eight schemas by two seeds.
fn crowd() -> Vec<(Value, u64)> {
    let schemas = schemas().into_iter().enumerate();
    schemas
        .flat_map(|(index, schema)| [0, 1].map(|seed| (schema.clone(), seed * 100 + index as u64)))
        .collect()
}

async fn crowd_answers(client: &Client, k: u32, biased: bool) -> Result<Vec<Answer>> {
    let requests = crowd().into_iter().map(|(schema, seed)| {
        let request = schema_request(&schema, seed).drafting(k);
        if biased { backticks(request) } else { request }
    });
    client.generate_all(requests).await
}

#[tokio::test]
async fn sixteen_at_once_are_valid_and_the_same_for_every_draft() -> Result<()> {
    let mut plain = None;
    for agreement in [Agreement::Always, Agreement::Never] {
        let tiny = TinyCluster::start(&[agreement]).await?;
        let oracle = Oracle::load(&tiny.target)?;
        for k in [0, 1, 4, 8] {
            let answers = crowd_answers(&tiny.client, k, false).await?;
            let ids: Vec<_> = answers.iter().map(|answer| answer.ids.clone()).collect();
            let expected = plain.get_or_insert_with(|| ids.clone());
            assert_eq!(&ids, expected, "k = {k}, {agreement:?}");
            for ((schema, _), answer) in crowd().iter().zip(&answers) {
                check_json(&oracle, schema, answer)?;
            }
            let finished = answers.iter().filter(|it| it.reason == FinishReason::Stop);
            assert!(finished.count() >= 12, "most texts end by themselves");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_grammar_wins_over_any_taste_for_fences() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let answers = crowd_answers(&tiny.client, 4, true).await?;
    for ((schema, _), answer) in crowd().iter().zip(&answers) {
        check_json(&oracle, schema, answer)?;
    }
    let fenced = answers.iter().filter(|answer| answer.text.contains('`'));
    assert!(
        fenced.count() > 0,
        "strings are full of what is liked so much"
    );
    Ok(())
}

#[tokio::test]
async fn choices_of_a_schema_are_each_valid() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let schema = &schemas()[6];
    let request = schema_request(schema, 9).choices(6);
    let choices = tiny.client.generate_choices(request).await?;
    for choice in &choices {
        check_json(&oracle, schema, choice)?;
    }
    assert!(choices.iter().any(|choice| choice.ids != choices[0].ids));
    Ok(())
}

#[tokio::test]
async fn any_json_object_is_one() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    // What closes and what separates is made likely: otherwise a model that knows no JSON goes on.
    let biased = |seed| {
        request(Form::JsonObject(true), seed).choosing(|s| {
            for byte in *b"\"}]" {
                s.logit_bias.insert(byte_token(byte), 7.0);
            }
        })
    };
    let plain = tiny
        .client
        .generate_all((0..16).map(|seed| biased(seed).plain()))
        .await?;
    let answers = tiny
        .client
        .generate_all((0..16).map(|seed| biased(seed).drafting(5)))
        .await?;
    let mut finished = 0;
    for (answer, plain) in answers.iter().zip(&plain) {
        assert_eq!(answer.ids, plain.ids);
        if is_finished(&oracle, grammar::Form::JsonObject, answer)? {
            finished += 1;
            let document: Value = serde_json::from_str(&answer.text)?;
            assert!(document.is_object(), "{document}");
        }
    }
    assert!(finished >= 8, "{finished} of 16 ended");
    Ok(())
}

#[tokio::test]
async fn regular_expressions_and_grammars_match_as_a_whole() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let oracle = Oracle::load(&tiny.target)?;
    let regex = "(0|[1-9][0-9]{0,3})-(kůň|日本|🐴){2}";
    let lark = "start: word (\", \" word){1,3} \"!\"\nword: /[a-z]{2,4}/ | \"č\"";
    let digits = |text: &str| {
        text.len() <= 4
            && text.bytes().all(|it| it.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
    };
    let is_regex = |text: &str| {
        let (number, animals) = text.split_once('-')?;
        let stripped = ["kůň", "日本", "🐴"]
            .into_iter()
            .fold(animals.to_owned(), |rest, animal| rest.replace(animal, "."));
        (digits(number) && !number.is_empty() && stripped == "..").then_some(())
    };
    let is_word = |word: &str| {
        word == "č"
            || ((2..=4).contains(&word.len()) && word.bytes().all(|it| it.is_ascii_lowercase()))
    };
    let is_lark = |text: &str| {
        let words: Vec<&str> = text.strip_suffix('!')?.split(", ").collect();
        ((2..=4).contains(&words.len()) && words.iter().all(|word| is_word(word))).then_some(())
    };
    for seed in 0..8 {
        let both = [Form::Regex(regex.to_owned()), Form::Lark(lark.to_owned())];
        let requests = both.map(|form| request(form, seed));
        let plain = tiny
            .client
            .generate_all(requests.clone().map(Prompting::plain))
            .await?;
        let answers = tiny
            .client
            .generate_all(requests.map(|it| it.drafting(6)))
            .await?;
        for (answer, plain) in answers.iter().zip(&plain) {
            assert_eq!(answer.ids, plain.ids, "seed {seed}");
            assert_eq!(
                answer.reason,
                FinishReason::Stop,
                "both end: {:?}",
                answer.text
            );
        }
        is_regex(&answers[0].text).context(answers[0].text.clone())?;
        is_lark(&answers[1].text).context(answers[1].text.clone())?;
        assert!(is_finished(
            &oracle,
            grammar::Form::Lark(lark.to_owned()),
            &answers[1]
        )?);
    }
    Ok(())
}

/// A draft worker that opens Markdown fences whatever the grammar, and now and then says what is no
/// token at all.
#[tokio::test]
async fn a_drafted_token_that_the_grammar_forbids_is_rejected_and_no_more() -> Result<()> {
    let fence = b"```json\n{\"".iter().map(|byte| byte_token(*byte));
    let rogue: Vec<u32> = fence.chain([END, 4_000_000]).collect();
    let tiny = TinyCluster::with_rogue(&rogue).await?;
    let oracle = Oracle::load(&tiny.target)?;
    assert_eq!(oracle.end_token(), END);
    let plain = crowd_answers(&tiny.client, 0, false).await?;
    let answers = crowd_answers(&tiny.client, 5, false).await?;
    let (mut verified, mut accepted) = (0, 0);
    for (((schema, _), answer), plain) in crowd().iter().zip(&answers).zip(&plain) {
        assert_eq!(answer.ids, plain.ids, "{schema}");
        check_json(&oracle, schema, answer)?;
        verified += answer.speculation.draft_tokens;
        accepted += answer.speculation.accepted_draft_tokens;
    }
    assert!(verified > 100, "the proposals were looked at");
    assert!(accepted < verified, "and some rejected");
    let log = tiny.cluster.target.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    assert!(!tiny.cluster.coordinator.log().contains("ERROR"));
    Ok(())
}
