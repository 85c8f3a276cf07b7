//! What a request may demand of its text, and its translation into the library's terms.

use crate::GrammarError;
use crate::error::one_line;
use llguidance::JsonCompileOptions;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// The longest schema, regular expression or grammar, in bytes.
pub const MAX_SOURCE_LEN: usize = 1 << 20;

/// White space between the parts of a JSON document: a space, or a line break and its indentation.
/// The schema's own repetition of it would be endless, and some models never leave it.
const JSON_WHITESPACE: &str = r"\x20|\r?\n[\x20\t]{0,64}";

/// What a text must match, as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A JSON document that is valid under this JSON schema.
    ///
    /// Between its parts stands at most a space, or a line break with up to 64 blanks of
    /// indentation: any common layout can be written, endless white space cannot. A keyword that
    /// would not be kept to the letter is refused, and so is `oneOf` where the alternatives may
    /// overlap. A schema's own `x-guidance` (an extension of the library) is disregarded.
    JsonSchema(String),
    /// Text that matches this regular expression: Rust's syntax, without look-around.
    /// `^` at the beginning and `$` at the end may be written and mean nothing more.
    Regex(String),
    /// Text of this grammar, in the library's dialect of Lark. Lexemes with `stop=` or
    /// `max_tokens=` are refused, as they cannot be rolled back; end tokens cannot be named.
    Lark(String),
    /// Any JSON object, laid out as for a schema.
    JsonObject,
}

impl Form {
    /// The field of a request that holds it.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json_schema",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "lark",
            Self::JsonObject => "json_object",
        }
    }

    pub(crate) fn error(&self, reason: impl std::fmt::Display) -> GrammarError {
        GrammarError(format!("{}: {}", self.field(), one_line(reason)))
    }

    /// In the library's terms.
    pub(crate) fn translate(&self) -> Result<TopLevelGrammar, GrammarError> {
        let source = match self {
            Self::JsonSchema(source) | Self::Regex(source) | Self::Lark(source) => source,
            Self::JsonObject => return Ok(json_grammar(object_schema())),
        };
        if source.trim().is_empty() {
            return Err(self.error("is empty"));
        }
        if source.len() > MAX_SOURCE_LEN {
            return Err(self.error(format!(
                "has {} bytes, at most {MAX_SOURCE_LEN} are allowed",
                source.len()
            )));
        }
        match self {
            Self::JsonSchema(_) => self.json_schema(source),
            Self::Regex(_) => self.regex(source),
            Self::Lark(_) | Self::JsonObject => Ok(TopLevelGrammar::from_lark(source.clone())),
        }
    }

    fn json_schema(&self, source: &str) -> Result<TopLevelGrammar, GrammarError> {
        let schema: Value = serde_json::from_str(source)
            .map_err(|error| self.error(format!("is not valid JSON: {error}")))?;
        match schema {
            Value::Object(schema) => Ok(json_grammar(schema)),
            Value::Bool(true) => Ok(json_grammar(Map::new())),
            Value::Bool(false) => Err(self.error("false allows no document")),
            _ => Err(self.error("is neither an object nor a boolean")),
        }
    }

    fn regex(&self, source: &str) -> Result<TopLevelGrammar, GrammarError> {
        let source = source.strip_prefix('^').unwrap_or(source);
        let source = match source.strip_suffix('$') {
            Some(before) if !ends_in_escape(before) => before,
            _ => source,
        };
        if source.is_empty() {
            return Err(self.error("is empty"));
        }
        // The library would drop it.
        if ends_in_escape(source) {
            return Err(self.error("ends in a backslash that escapes nothing"));
        }
        let grammar = format!("start: /{}/", escape_slashes(source));
        Ok(TopLevelGrammar::from_lark(grammar))
    }
}

/// A slash would end the expression.
fn escape_slashes(regex: &str) -> String {
    let mut escaped = String::with_capacity(regex.len());
    let mut after_backslash = false;
    for c in regex.chars() {
        if c == '/' && !after_backslash {
            escaped.push('\\');
        }
        escaped.push(c);
        after_backslash = c == '\\' && !after_backslash;
    }
    escaped
}

fn ends_in_escape(regex: &str) -> bool {
    let backslashes = regex.bytes().rev().take_while(|byte| *byte == b'\\');
    backslashes.count() % 2 == 1
}

fn object_schema() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object"))])
}

fn json_grammar(schema: Map<String, Value>) -> TopLevelGrammar {
    let options = JsonCompileOptions {
        whitespace_flexible: false,
        whitespace_pattern: Some(JSON_WHITESPACE.to_owned()),
        ..JsonCompileOptions::default()
    };
    let mut schema = Value::Object(schema);
    options.apply_to(&mut schema);
    TopLevelGrammar::from_json_schema(schema)
}
