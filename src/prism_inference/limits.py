"""Every named limit, with its reason. Reads nothing and knows nothing: a number here is the only place to change it."""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

# --- GGUF container: bounds for hostile files; the largest published files stay well below each -----------------------
GGUF_MAX_KEYS: Final = 100_000  # published files have fewer than 100
GGUF_MAX_TENSORS: Final = 100_000  # published files have fewer than 10,000
GGUF_MAX_KEY_BYTES: Final = 65_535  # the specification's own bound
GGUF_MAX_NAME_BYTES: Final = 64  # the specification's own bound
GGUF_MAX_STRING_BYTES: Final = 16 * MIB  # chat templates and character maps are the longest strings
GGUF_MAX_ARRAY_ITEMS: Final = 4_000_000  # the largest vocabularies have some 300,000 tokens
GGUF_MAX_STRINGS: Final = 4_000_000  # of all string arrays of a file; tokens and merges of the largest come to 800,000
GGUF_MAX_HEADER_BYTES: Final = 512 * MIB  # everything before the tensor data
GGUF_MAX_DIMS: Final = 4  # as ggml
GGUF_MAX_EXTENT: Final = 1 << 31  # one dimension of a tensor
GGUF_MAX_ELEMENTS: Final = 1 << 40  # all dimensions multiplied
GGUF_MAX_ALIGNMENT: Final = 65_536  # files use 32 to 4,096; an unbounded one lets a tiny file ask for gigabytes
GGUF_MAX_SHARDS: Final = 1_000  # the file name has room for 99,999; published sets have fewer than 100

# --- Tokenizer --------------------------------------------------------------------------------------------------------
TOKENIZER_MAX_TOKENS: Final = 1_000_000
TOKENIZER_MAX_MERGES: Final = 1_000_000
TOKENIZER_MAX_TOKEN_BYTES: Final = 64 * KIB
TOKENIZER_MAX_TEXT_BYTES: Final = 16 * MIB
TOKENIZER_MAX_SPECIAL: Final = 65_536  # gemma files carry some 6,400 control and user-defined tokens
TOKENIZER_CACHE_PIECES: Final = 32_768  # words whose ids are remembered: some ten megabytes
TOKENIZER_CACHE_PIECE_CHARACTERS: Final = 64  # longer pieces hardly ever come twice

# --- Chat and generation ----------------------------------------------------------------------------------------------
TEMPLATE_MAX_BYTES: Final = 1 * MIB  # the largest published template is below 64 KiB
TEMPLATE_MAX_TOKENS: Final = 65_536  # of the template's language: costs of compiling; published ones are below 4,000
TEMPLATE_MAX_OUTPUT_BYTES: Final = 64 * MIB
TEMPLATE_MAX_SECONDS: Final = 5.0  # published templates render in milliseconds
TEMPLATE_MAX_RANGE: Final = 100_000  # items of one range() call
TEMPLATE_MAX_STEPS: Final = 500_000  # loop turns, calls and visited items; published templates take some 20 a message
TEMPLATE_STEPS_PER_PAIR: Final = 2  # more for each pair of messages: some templates look through all for each of them
TEMPLATE_MAX_WORK_BYTES: Final = 256 * MIB  # all strings and lists that one rendering makes, kept or dropped
CHAT_MAX_DEPTH: Final = 64  # nesting of messages, tools and template variables
STOP_MAX_STRINGS: Final = 64
STOP_MAX_BYTES: Final = 4 * KIB  # one stop string
SAMPLING_MAX_STEPS: Final = 64  # of one chain; each may be named more than once
DRY_MAX_BREAKERS: Final = 64
DRY_MAX_BREAKER_BYTES: Final = 40  # llama.cpp cuts longer ones off
LOGPROBS_MAX: Final = 100  # likeliest tokens reported for each place; OpenAI's interface allows 20
ANSWERS_MAX: Final = 128  # to one prompt; as OpenAI's interface

# --- Models and runtime -----------------------------------------------------------------------------------------------
MODEL_MAX_BLOCKS: Final = 1_024
MODEL_MAX_CONTEXT: Final = 1 << 24
MODEL_MAX_VOCABULARY: Final = 1_000_000
MODEL_MAX_EXPERTS_USED: Final = 128  # by one token: each is a node of the graph in every block; published models use 10
BATCH_TOKENS: Final = 512  # tokens that one run of the plan takes; longer prompts go in several runs
LOGITS_BATCH_TOKENS: Final = 64  # the same where logits of every position are wanted: bounds their memory
MAX_THREADS: Final = 256
STATE_COPIES: Final = 4  # kept per session to go back to: 150 MiB each for a hybrid model of 27 billion weights
ADAPTER_MAX_COUNT: Final = 16  # on one model: each adds three or four nodes to every product that it changes
ADAPTER_MAX_RANK: Final = 4_096  # published adapters have 4 to 256
ADAPTER_MAX_CONFIG_BYTES: Final = 4 * MIB  # patterns name modules; published files are below 64 KiB
SAFETENSORS_MAX_HEADER_BYTES: Final = 32 * MIB  # room for 200,000 tensors; the format's own bound is 100 MB
IDLE_SESSIONS: Final = 4  # kept by a model for its next calls; each holds a cache of keys and values

# --- Graph ------------------------------------------------------------------------------------------------------------
GRAPH_DEFAULT_CAPACITY: Final = 2_048
GRAPH_MAX_SOURCES: Final = 10  # as ggml

# --- Training ---------------------------------------------------------------------------------------------------------
TRAINING_TEXT_PIECE: Final = 1 << 20  # characters of a text that are tokenized at a time
TRAINING_MAX_NODES: Final = 1_000_000  # of one training graph: models of a hundred blocks have some ten thousand
