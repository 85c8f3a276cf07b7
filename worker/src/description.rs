//! The tokenizer in pieces, as both workers send it.

use engine::Vocabulary;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use proto::v1;
use std::sync::Arc;
use tonic::Status;

/// The answer of `GetTokenizer`.
pub type TokenizerStream = BoxStream<'static, Result<v1::TokenizerChunk, Status>>;

/// Bytes per piece: far below what a message may hold.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The tokenizer in pieces, in order. A piece is copied when it is asked for.
pub fn tokenizer_chunks(vocabulary: Arc<Vocabulary>) -> TokenizerStream {
    let starts = (0..vocabulary.tokenizer_json.len()).step_by(CHUNK_BYTES);
    stream::iter(starts)
        .map(move |start| {
            let json = &vocabulary.tokenizer_json;
            let end = json.len().min(start + CHUNK_BYTES);
            Ok(v1::TokenizerChunk {
                data: json[start..end].to_vec(),
            })
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt as _;

    #[tokio::test]
    async fn the_chunks_joined_are_the_document() {
        let document: Vec<u8> = (0..CHUNK_BYTES * 2 + 17).map(|i| i as u8).collect();
        let vocabulary = Arc::new(Vocabulary {
            tokenizer_json: document.clone(),
            size: 1,
            fingerprint: String::new(),
            eos_ids: Vec::new(),
            bos_id: None,
            chat_template: String::new(),
        });
        let chunks: Vec<_> = tokenizer_chunks(vocabulary)
            .map_ok(|chunk| chunk.data)
            .try_collect()
            .await
            .expect("no failure");
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks.concat(), document);
    }
}
