//! The OpenAPI document: made of the types that bodies are read into and answers are written from.

use super::{chat, completions, models, tokenize};
use axum::Json;
use utoipa::OpenApi;
use utoipa::openapi;

/// Everything that this front takes. `docs/openapi.json` is a copy.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "specdec",
        description = "Text of a large language model, decoded faster by speculation. The paths and \
                       names are OpenAI's; what goes beyond is spelled as vLLM and llama.cpp have it."
    ),
    paths(
        chat::chat,
        completions::completions,
        models::models,
        models::model,
        models::version,
        tokenize::tokenize,
        tokenize::detokenize
    )
)]
struct Document;

/// The document.
pub(super) async fn document() -> Json<openapi::OpenApi> {
    Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Where set, the copy is written anew instead of compared.
    const REWRITE: &str = "SPECDEC_REWRITE_OPENAPI";

    #[test]
    fn the_copy_among_the_documents_is_what_the_service_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
        let document = Document::openapi().to_pretty_json().expect("written") + "\n";
        if std::env::var_os(REWRITE).is_some() {
            std::fs::write(&path, document).expect("written");
            return;
        }
        let copy = std::fs::read_to_string(&path).expect("docs/openapi.json");
        assert!(
            copy == document,
            "docs/openapi.json is not what the types say: run this test with {REWRITE}=1"
        );
    }
}
