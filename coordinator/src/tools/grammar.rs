//! Calls as a grammar, which has the model write them: Lark, as the target reads it.

use super::Syntax;
use proto::v1::Tool;
use std::fmt::Write as _;
use tokenizers::Tokenizer;

/// White space in the arguments, as everywhere in structured output.
const LAYOUT: &str = r#""x-guidance": {"whitespace_flexible": false, "whitespace_pattern": "\\x20|\\r?\\n[\\x20\\t]{0,64}"}"#;

/// One call of one of `tools`.
pub(super) fn call(syntax: Syntax, tools: &[&Tool], tokenizer: &Tokenizer) -> String {
    let [open, close] = marks(syntax, tokenizer);
    let start = match syntax {
        Syntax::Hermes => format!(r#"{open} "\n" body "\n" {close}"#),
        Syntax::Mistral => format!(r#"{open} " "? "[" body "]""#),
        Syntax::Llama => "body".to_owned(),
    };
    format!("start: {start}\n{}", bodies(syntax, tools))
}

/// One call or more of `tools`.
pub(super) fn calls(syntax: Syntax, tools: &[&Tool], tokenizer: &Tokenizer) -> String {
    let [open, close] = marks(syntax, tokenizer);
    let start = match syntax {
        Syntax::Hermes => {
            format!("call (\"\\n\" call)*\ncall: {open} \"\\n\" body \"\\n\" {close}")
        }
        Syntax::Mistral => format!(r#"{open} " "? "[" body (", " body)* "]""#),
        // A second one would be a guess: the template teaches one.
        Syntax::Llama => return call(syntax, tools, tokenizer),
    };
    format!("start: {start}\n{}", bodies(syntax, tools))
}

/// Any text, with calls of `tools` in it; `None` where no grammar can tell the two apart.
pub(super) fn optional(syntax: Syntax, tools: &[&Tool], tokenizer: &Tokenizer) -> Option<String> {
    let [open, close] = marks(syntax, tokenizer);
    let is_word = open.starts_with('"');
    match syntax {
        Syntax::Hermes if is_word => Some(format!(
            "start: call* rest\nrest: TEXT\nTEXT: /(.|\\n)*/\nopen[lazy]: TEXT {open}\n\
             call: open \"\\n\" body \"\\n\" {close}\n{}",
            bodies(syntax, tools)
        )),
        Syntax::Hermes | Syntax::Mistral | Syntax::Llama => None,
    }
}

/// What calls begin and end with: words, or special tokens.
fn marks(syntax: Syntax, tokenizer: &Tokenizer) -> [String; 2] {
    let added = tokenizer.get_added_vocabulary();
    [syntax.opening(), syntax.closing()].map(|mark| match tokenizer.token_to_id(mark) {
        Some(id) if added.is_special_token(mark) => format!("<[{id}]>"),
        _ => format!("\"{mark}\""),
    })
}

/// The JSON of a call.
fn bodies(syntax: Syntax, tools: &[&Tool]) -> String {
    let numbers = 0..tools.len();
    let bodies: Vec<_> = numbers.map(|number| format!("body_{number}")).collect();
    let mut rules = format!("body: {}\n", bodies.join(" | "));
    let arguments = syntax.arguments();
    for (number, tool) in tools.iter().enumerate() {
        // Writing to a string cannot fail. A name is letters, digits, `_` and `-`.
        let _ = write!(
            rules,
            "body_{number}: \"{{\\\"name\\\": \\\"{}\\\", \\\"{arguments}\\\": \" args_{number} \"}}\"\n\
             args_{number}: %json {}\n",
            tool.name,
            schema(&tool.parameters)
        );
    }
    rules
}

/// The schema of the arguments. It stays a document of its own, so that what refers to its parts
/// finds them.
fn schema(parameters: &str) -> String {
    let inner = parameters.trim();
    let inner = inner
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'));
    match inner.map(str::trim) {
        None | Some("") => format!("{{\"type\": \"object\", {LAYOUT}}}"),
        Some(inner) => format!("{{{inner}, {LAYOUT}}}"),
    }
}
