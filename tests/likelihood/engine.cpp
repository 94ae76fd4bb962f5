// What `engine.py` needs of llama.cpp: tokens of a text, and the log-probability of given tokens, with
// keys and values of what was read before kept. Knows no jobs and no messages.
//
// A cache of a model with a sliding window can't be cut back, so that its state is saved where a later
// text will part from this one (`pl_mark`), and brought back from there (`pl_keep`).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

// States that are kept at a time: 15 MB each for the small model.
static const size_t MARKS = 32;

struct Mark {
    int at;
    std::vector<uint8_t> state;
};

struct Engine {
    llama_model * model;
    llama_context * context;
    const llama_vocab * vocab;
    llama_batch batch;
    int room;
    bool sliding;
    int length = 0;
    std::vector<Mark> marks;
};

static void quiet(ggml_log_level level, const char * text, void *) {
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

// The log-probability of one token under the logits of the one before it.
static double log_probability(const float * logits, int count, int token) {
    const float most = *std::max_element(logits, logits + count);
    double sum = 0;
    for (int at = 0; at < count; at += 256) {
        float part = 0;
        for (int one = at; one < std::min(count, at + 256); one++) part += std::exp(logits[one] - most);
        sum += part;
    }
    return double(logits[token]) - most - std::log(sum);
}

extern "C" {

// Loads a model for texts of up to `window` tokens, read in pieces of up to `room`. Null where it can't.
Engine * pl_open(const char * model, const char * backends, int window, int room, int outputs, int threads, int layers) {
    llama_log_set(quiet, nullptr);
    if (backends && *backends) ggml_backend_load_all_from_path(backends);
    llama_backend_init();
    llama_model_params weights = llama_model_default_params();
    weights.n_gpu_layers = layers;
    Engine * engine = new Engine();
    engine->model = llama_model_load_from_file(model, weights);
    if (!engine->model) return nullptr;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = window;
    params.n_batch = params.n_ubatch = room;
    params.n_outputs_max = outputs;
    params.n_threads = params.n_threads_batch = threads;
    params.swa_full = false;
    params.no_perf = true;
    engine->context = llama_init_from_model(engine->model, params);
    if (!engine->context) return nullptr;
    engine->vocab = llama_model_get_vocab(engine->model);
    engine->sliding = llama_model_n_swa(engine->model) > 0;
    engine->batch = llama_batch_init(room, 0, 1);
    engine->room = room;
    return engine;
}

// The tokens of a text: how many there are, or minus as many as `most` is too small for.
int pl_tokens(Engine * engine, const char * text, int bytes, int begins, int special, int * out, int most) {
    return llama_tokenize(engine->vocab, text, bytes, out, most, begins != 0, special != 0);
}

// The bytes of a token.
int pl_piece(Engine * engine, int token, char * out, int most) {
    return llama_token_to_piece(engine->vocab, token, out, most, 0, true);
}

// Keeps no more than the first `length` tokens of what was read; says how many it kept.
int pl_keep(Engine * engine, int length) {
    if (length >= engine->length) return engine->length;
    llama_memory_t memory = llama_get_memory(engine->context);
    std::vector<Mark> & marks = engine->marks;
    while (!marks.empty() && marks.back().at > length) marks.pop_back();
    if (!engine->sliding) {
        if (llama_memory_seq_rm(memory, 0, length, -1)) return engine->length = length;
    } else if (!marks.empty()) {
        const Mark & mark = marks.back();
        const llama_state_seq_flags part = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
        if (llama_state_seq_set_data_ext(engine->context, mark.state.data(), mark.state.size(), 0, part) &&
            llama_memory_seq_rm(memory, 0, mark.at, -1)) {
            return engine->length = mark.at;
        }
    }
    llama_memory_clear(memory, true);
    marks.clear();
    return engine->length = 0;
}

// Remembers the state as it is now, as far as the window slides.
void pl_mark(Engine * engine) {
    std::vector<Mark> & marks = engine->marks;
    if (!engine->sliding || (!marks.empty() && marks.back().at == engine->length)) return;
    const llama_state_seq_flags part = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    Mark mark{engine->length, std::vector<uint8_t>(llama_state_seq_get_size_ext(engine->context, 0, part))};
    if (!llama_state_seq_get_data_ext(engine->context, mark.state.data(), mark.state.size(), 0, part)) return;
    if (marks.size() >= MARKS) marks.erase(marks.begin());
    marks.push_back(std::move(mark));
}

// Reads tokens behind what was read before. `next[i]` is the token that follows the i-th, or -1 where
// nobody asks; then `out[i]` stays as it is. 0 where all went well.
int pl_read(Engine * engine, const int * tokens, const int * next, int count, double * out) {
    if (count > engine->room) return -1;
    llama_batch & batch = engine->batch;
    batch.n_tokens = count;
    for (int at = 0; at < count; at++) {
        batch.token[at] = tokens[at];
        batch.pos[at] = engine->length + at;
        batch.n_seq_id[at] = 1;
        batch.seq_id[at][0] = 0;
        batch.logits[at] = next[at] >= 0;
    }
    const int failed = llama_decode(engine->context, batch);
    if (failed) {
        llama_memory_clear(llama_get_memory(engine->context), true);
        engine->marks.clear();
        engine->length = 0;
        return failed;
    }
    const int words = llama_vocab_n_tokens(engine->vocab);
    for (int at = 0; at < count; at++) {
        if (next[at] >= 0) out[at] = log_probability(llama_get_logits_ith(engine->context, at), words, next[at]);
    }
    engine->length += count;
    return 0;
}

}
