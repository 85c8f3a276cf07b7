use super::*;
use proptest::prelude::*;
use proto::v1::ToolCall;

const HERMES: &str = "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}</tool_call>\\\"\", \"b\": 1.50}}\n</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>\nDone <b>.";
const MISTRAL: &str = "Hm [1] [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [\"]\"]}}, {\"name\": \"g\", \"arguments\": \"{\\\"x\\\": 1}\"}]";
const LLAMA: &str =
    " {\"name\": \"f\", \"parameters\": {\"a\": {}}}; {\"name\": \"g\", \"parameters\": {}}\n";

fn reader(syntax: Syntax) -> Reader {
    Reader::new(Reading {
        syntax,
        names: Arc::new(["f", "g"].map(String::from).into()),
        shown: Arc::new([]),
    })
}

fn read<'a>(syntax: Syntax, pieces: impl IntoIterator<Item = &'a str>) -> Read {
    let mut reader = reader(syntax);
    let mut all = Read::default();
    let mut add = |read: Read| {
        all.text += &read.text;
        all.calls.extend(read.calls);
    };
    for piece in pieces {
        add(reader.push(piece));
    }
    add(reader.finish());
    assert_eq!(reader.has_called(), !all.calls.is_empty());
    all
}

fn calls(read: &Read) -> Vec<(&str, &str)> {
    let calls = read.calls.iter();
    calls.map(|call| (&*call.name, &*call.arguments)).collect()
}

fn expected(
    syntax: Syntax,
) -> (
    &'static str,
    &'static str,
    [(&'static str, &'static str); 2],
) {
    match syntax {
        Syntax::Hermes => (
            HERMES,
            "Sure.\nDone <b>.",
            [("f", r#"{"a": "}</tool_call>\"", "b": 1.50}"#), ("g", "{}")],
        ),
        Syntax::Mistral => (
            MISTRAL,
            "Hm [1]",
            [("f", r#"{"a": ["]"]}"#), ("g", r#"{"x": 1}"#)],
        ),
        Syntax::Llama => (LLAMA, "", [("f", r#"{"a": {}}"#), ("g", "{}")]),
    }
}

const ALL: [Syntax; 3] = [Syntax::Hermes, Syntax::Mistral, Syntax::Llama];

#[test]
fn calls_are_read_wherever_the_text_is_cut() {
    for syntax in ALL {
        let (text, rest, both) = expected(syntax);
        for at in 0..=text.len() {
            let (a, b) = text.split_at(at);
            let read = read(syntax, [a, b]);
            assert_eq!((&*read.text, &*calls(&read)), (rest, &both[..]), "at {at}");
        }
        let mut letters = [0; 4];
        let mut reader = reader(syntax);
        let mut count = 0;
        for c in text.chars() {
            count += reader.push(c.encode_utf8(&mut letters)).calls.len();
        }
        assert_eq!(count, 2, "not only at the end");
    }
}

#[test]
fn ids_tell_calls_apart() {
    for syntax in ALL {
        let text = expected(syntax).0;
        let mut ids: Vec<_> = [read(syntax, [text]), read(syntax, [text])]
            .into_iter()
            .flat_map(|read| read.calls)
            .map(|ToolCall { id, .. }| id)
            .collect();
        assert!(ids.iter().all(|id| id.len() >= 9), "{ids:?}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 4);
    }
}

#[test]
fn what_is_no_call_is_text() {
    for text in [
        "<tool_call",
        "<tool_call>{\"name\": \"f\", \"arguments\": {",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}} and more</tool_call>",
        "<tool_call>{]}</tool_call> \n",
        "a <<tool_call> b\n<tool_call>\n\n",
    ] {
        let read = read(Syntax::Hermes, [text]);
        assert_eq!((&*read.text, read.calls.len()), (text, 0));
    }
    for text in [
        "[TOOL_CALLS] [{\"name\": \"f\"}",
        "[TOOL_CALLS] f",
        "[TOOL_CALLS] [1]",
    ] {
        let read = read(Syntax::Mistral, [text]);
        assert_eq!((&*read.text, read.calls.len()), (text, 0));
    }
    for text in [
        "Say {\"name\": \"f\", \"parameters\": {}}",
        "{\"name\": \"unknown\", \"parameters\": {}}",
        "{\"name\": \"f\"}",
        " {\"a\": 1} {\"name\": \"f\", \"parameters\": {}}",
        "{\"name\": \"f\", \"parameters\": {",
        " ",
    ] {
        let read = read(Syntax::Llama, [text]);
        assert_eq!((&*read.text, read.calls.len()), (text, 0));
    }
}

#[test]
fn a_call_after_one_that_was_none_is_read() {
    let text = "<tool_call>no</tool_call><tool_call>{\"name\": \"f\"}</tool_call>";
    let read = read(Syntax::Hermes, [text]);
    assert_eq!(read.text, "<tool_call>no</tool_call>");
    assert_eq!(calls(&read), [("f", "{}")]);
}

#[test]
fn a_call_at_the_end_needs_no_closing() {
    let read = read(Syntax::Hermes, ["<tool_call>{\"name\": \"f\"}\n</tool"]);
    assert_eq!((&*read.text, &*calls(&read)), ("", &[("f", "{}")][..]));
}

#[test]
fn text_is_not_held_back() {
    let mut reader = reader(Syntax::Hermes);
    assert_eq!(reader.push("a b").text, "a b");
    assert_eq!(reader.push(" <t").text, "");
    assert_eq!(reader.push("able>").text, " <table>");
}

#[test]
fn brackets_without_end_are_read_in_no_time_and_stay_text() {
    for text in ["<tool_call>{", "<tool_call>", "{[", "}"] {
        let text = text.repeat(200_000);
        for syntax in ALL {
            assert_eq!(read(syntax, [&*text]).text, text);
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_and_pieces_make_no_difference(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "{\"name\": \"f\", \"arguments\": {}}",
                "[", "]", "{", "}", "\"", "\\", "é", " ", "\n", ";", "<", "a",
            ]),
            0..12,
        ),
        run in 1usize..9,
        syntax in prop::sample::select(ALL.to_vec()),
    ) {
        let text = parts.concat();
        let whole = read(syntax, [&*text]);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<String> = letters.chunks(run).map(|piece| piece.concat()).collect();
        let cut = read(syntax, pieces.iter().map(String::as_str));
        prop_assert_eq!(&cut.text, &whole.text);
        prop_assert_eq!(calls(&cut), calls(&whole));
        if whole.calls.is_empty() {
            prop_assert_eq!(whole.text, text);
        }
    }
}

#[test]
fn templates_say_how_calls_are_written() {
    let qwen = include_str!("../../tests/data/qwen2.5-coder.jinja");
    assert_eq!(Syntax::of_template(qwen), Some(Syntax::Hermes));
    let smollm = include_str!("../../tests/data/smollm2.jinja");
    assert_eq!(Syntax::of_template(smollm), None);
    let mistral =
        r#"{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{{ "[TOOL_CALLS] [" }}"#;
    assert_eq!(Syntax::of_template(mistral), Some(Syntax::Mistral));
    let llama = r#"{% for t in tools %}{{ t }}{% endfor %}Respond in the format {"name": function name, "parameters": ...}."#;
    assert_eq!(Syntax::of_template(llama), Some(Syntax::Llama));
}
