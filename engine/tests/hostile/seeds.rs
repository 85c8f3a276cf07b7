//! Sound files, as small as can be: what the corpus begins with.

use super::bodies::{CONFIG, SAFETENSORS};

/// Seeds by target.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "gguf_header" | "gguf_vocabulary" => vec![gguf("llama", "gpt2"), gguf("gemma3", "llama")],
        "safetensors_header" => vec![SAFETENSORS.into(), safetensors()],
        "config_json" => vec![CONFIG.into(), GEMMA.into(), ROPE.into()],
        "tokenizer_json" => vec![BPE.into(), UNIGRAM.into()],
        other => panic!("no seeds for {other}"),
    }
}

/// A model of one layer with a vocabulary of some tokens.
fn gguf(architecture: &str, tokenizer: &str) -> Vec<u8> {
    let mut file = Gguf::default();
    let key = |name: &str| format!("{architecture}.{name}");
    file.text("general.architecture", architecture);
    for (name, value) in [
        ("context_length", 64),
        ("embedding_length", 8),
        ("block_count", 1),
        ("feed_forward_length", 16),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 4),
        ("rope.dimension_count", 4),
        ("attention.sliding_window", 16),
    ] {
        file.number(&key(name), value);
    }
    file.float(&key("rope.freq_base"), 10_000.0);
    file.float(&key("attention.layer_norm_rms_epsilon"), 1e-5);
    file.text("tokenizer.ggml.model", tokenizer);
    let bpe = [
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "Ġ",
        "<|im_start|>",
        "<|im_end|>",
    ];
    let pieces = ["<unk>", "<s>", "</s>", "<0x41>", "▁", "a", "b", "ab"];
    let tokens = if tokenizer == "gpt2" { bpe } else { pieces };
    file.texts("tokenizer.ggml.tokens", &tokens);
    file.numbers("tokenizer.ggml.token_type", 5, &[1, 1, 1, 1, 1, 1, 3, 3]);
    file.numbers("tokenizer.ggml.scores", 6, &[0; 8]);
    file.texts("tokenizer.ggml.merges", &["a b", "ab c"]);
    file.number("tokenizer.ggml.eos_token_id", 7);
    file.text("tokenizer.chat_template", "{{ messages }}");
    file.tensor("token_embd.weight", &[8, 8]);
    file.tensor("output_norm.weight", &[8]);
    file.finish()
}

#[derive(Default)]
struct Gguf {
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data: u64,
}

impl Gguf {
    fn key(&mut self, name: &str, tag: u32) {
        string(&mut self.keys, name);
        self.keys.extend(tag.to_le_bytes());
        self.key_count += 1;
    }

    fn text(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        string(&mut self.keys, value);
    }

    fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.keys.extend(value.to_le_bytes());
    }

    fn float(&mut self, name: &str, value: f32) {
        self.key(name, 6);
        self.keys.extend(value.to_le_bytes());
    }

    fn array(&mut self, name: &str, tag: u32, length: usize) {
        self.key(name, 9);
        self.keys.extend(tag.to_le_bytes());
        self.keys.extend((length as u64).to_le_bytes());
    }

    fn texts(&mut self, name: &str, values: &[&str]) {
        self.array(name, 8, values.len());
        values
            .iter()
            .for_each(|value| string(&mut self.keys, value));
    }

    fn numbers(&mut self, name: &str, tag: u32, values: &[u32]) {
        self.array(name, tag, values.len());
        values
            .iter()
            .for_each(|value| self.keys.extend(value.to_le_bytes()));
    }

    /// Of f32.
    fn tensor(&mut self, name: &str, dimensions: &[u64]) {
        string(&mut self.tensors, name);
        self.tensors.extend((dimensions.len() as u32).to_le_bytes());
        for length in dimensions {
            self.tensors.extend(length.to_le_bytes());
        }
        self.tensors.extend(0u32.to_le_bytes());
        self.tensors.extend(self.data.to_le_bytes());
        self.tensor_count += 1;
        self.data += (4 * dimensions.iter().product::<u64>()).next_multiple_of(32);
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.key_count.to_le_bytes());
        bytes.extend(self.keys);
        bytes.extend(self.tensors);
        bytes.resize(bytes.len().next_multiple_of(32) + self.data as usize, 7);
        bytes
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"x":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
"y":{"dtype":"F16","shape":[],"data_offsets":[12,14]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([1; 14]);
    bytes
}

const GEMMA: &str = r#"{"model_type":"gemma3_text","hidden_size":8,"intermediate_size":16,"num_attention_heads":2,
"num_key_value_heads":1,"head_dim":4,"num_hidden_layers":2,"vocab_size":64,"max_position_embeddings":64,
"rms_norm_eps":1e-6,"rope_theta":1000000.0,"rope_local_base_freq":10000.0,"sliding_window":8,"sliding_window_pattern":2,
"layer_types":["sliding_attention","full_attention"],"query_pre_attn_scalar":4,"hidden_activation":"gelu_pytorch_tanh"}"#;

const ROPE: &str = r#"{"model_type":"qwen2","hidden_size":8,"intermediate_size":16,"num_attention_heads":2,
"num_key_value_heads":2,"num_hidden_layers":1,"vocab_size":64,"max_position_embeddings":64,"rms_norm_eps":1e-6,
"rope_theta":1000000.0,"hidden_act":"silu","rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
"high_freq_factor":4.0,"original_max_position_embeddings":32},"use_sliding_window":false,"tie_word_embeddings":false}"#;

const BPE: &str = r#"{"version":"1.0","added_tokens":[{"id":4,"content":"<|im_end|>","single_word":false,"lstrip":false,
"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence",
"pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}| ?\\p{L}+"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},"post_processor":null,
"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":[["a","b"],["ab","a"]]}}"#;

const UNIGRAM: &str = r#"{"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁",
"prepend_scheme":"always"},"post_processor":null,"decoder":null,"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],
["</s>",0.0],["▁a",-1.5],["b",-2.0]],"byte_fallback":false}}"#;
