//! What the text must match, in the ways that OpenAI and vLLM spell it.

use super::bodies::Parameters;
use super::error::Failure;
use super::fields::Rename;
use super::values::Json;
use proto::v1::{StructuredOutput, structured_output::Form};
use serde::Deserialize;
use utoipa::ToSchema;

/// Where the service has the forms.
const FORMS: [&str; 4] = [
    "structured.json_schema",
    "structured.regex",
    "structured.lark",
    "structured.json_object",
];

/// The form of the text, as OpenAI has it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseFormat {
    /// The kind.
    r#type: FormatKind,
    /// With `json_schema`.
    json_schema: Option<JsonSchema>,
}

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    /// Any text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema,
}

/// A schema with its name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct JsonSchema {
    /// Taken and ignored: the schema alone decides.
    #[expect(dead_code, reason = "taken, and ignored on purpose")]
    name: Option<String>,
    /// Taken and ignored: the schema alone decides.
    #[expect(dead_code, reason = "taken, and ignored on purpose")]
    description: Option<String>,
    /// The schema.
    #[schema(value_type = Option<Object>)]
    schema: Option<Json>,
    /// Taken and ignored: the text always matches.
    #[expect(dead_code, reason = "taken, and ignored on purpose")]
    strict: Option<bool>,
}

/// The form of the text, as vLLM has it: exactly one of these.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StructuredOutputs {
    /// JSON of this schema.
    #[schema(value_type = Option<Object>)]
    json: Option<Json>,
    /// Text that matches this regular expression.
    regex: Option<String>,
    /// One of these texts.
    choice: Option<Vec<String>>,
    /// Text of this grammar, written as for Lark.
    grammar: Option<String>,
    /// Any JSON object.
    json_object: Option<bool>,
}

impl Parameters {
    /// What the text must match. What this body calls it goes to `own`.
    ///
    /// # Errors
    /// Names the field that is wrong, or the second where only one can hold.
    pub(super) fn structured(
        &mut self,
        own: &mut Vec<Rename>,
    ) -> Result<Option<StructuredOutput>, Failure> {
        let vllm = self.structured_outputs.take().unwrap_or_default();
        let format = self.response_format.take();
        let stated = [
            (
                "response_format.json_schema.schema",
                format.map_or(Ok(None), ResponseFormat::form)?,
            ),
            ("structured_outputs.json", vllm.json.map(schema)),
            ("structured_outputs.regex", vllm.regex.map(Form::Regex)),
            ("structured_outputs.choice", vllm.choice.map(choice)),
            ("structured_outputs.grammar", vllm.grammar.map(Form::Lark)),
            (
                "structured_outputs.json_object",
                vllm.json_object.map(Form::JsonObject),
            ),
            ("guided_json", self.guided_json.take().map(schema)),
            ("guided_regex", self.guided_regex.take().map(Form::Regex)),
            ("guided_choice", self.guided_choice.take().map(choice)),
            ("guided_grammar", self.guided_grammar.take().map(Form::Lark)),
        ];
        let mut stated = stated
            .into_iter()
            .filter_map(|(name, form)| Some((name, form?)));
        let Some((name, form)) = stated.next() else {
            return Ok(None);
        };
        if let Some((second, _)) = stated.next() {
            let message = format!("cannot go with {name}: the text can match only one");
            return Err(Failure::invalid(second, message));
        }
        own.extend(FORMS.map(|path| (path, name)));
        Ok(Some(StructuredOutput { form: Some(form) }))
    }
}

impl ResponseFormat {
    fn form(self) -> Result<Option<Form>, Failure> {
        let schema_of = self.json_schema;
        match (self.r#type, schema_of) {
            (
                FormatKind::JsonSchema,
                Some(JsonSchema {
                    schema: Some(json), ..
                }),
            ) => Ok(Some(schema(json))),
            (FormatKind::JsonSchema, _) => {
                let field = "response_format.json_schema.schema";
                Err(Failure::invalid(field, "is missing"))
            }
            (_, Some(_)) => {
                let message = "goes only with the type json_schema";
                Err(Failure::invalid("response_format.json_schema", message))
            }
            (FormatKind::JsonObject, None) => Ok(Some(Form::JsonObject(true))),
            (FormatKind::Text, None) => Ok(None),
        }
    }
}

/// The form of a schema. vLLM's clients may send it as a string that holds the JSON.
fn schema(json: Json) -> Form {
    let inner = serde_json::from_str::<String>(&json.0);
    Form::JsonSchema(inner.unwrap_or(json.0))
}

/// A grammar of these texts and no others.
fn choice(texts: Vec<String>) -> Form {
    // A string of Lark is written as one of JSON.
    let texts = texts
        .iter()
        .map(|text| serde_json::Value::from(text.as_str()).to_string());
    let texts: Vec<String> = texts.collect();
    Form::Lark(format!("start: {}", texts.join(" | ")))
}
