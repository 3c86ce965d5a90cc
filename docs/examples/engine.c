/* A complete engine for ternary (BitNet b1.58) models, judged without Python: C99, standard library and libm only.

       cc -O2 -std=c99 -o engine engine.c -lm
       tritgold check --engine cmd:./engine --model CHECKPOINT

   It speaks docs/command-protocol.md for a little-endian machine: reads a model and requests from the folder INPUTS,
   writes outputs.safetensors and answer.json into the folder OUTPUTS. Numbered parts: 1 JSON and safetensors, 2 the
   operations, 3 the forward pass, 4 requests, 5 greedy text. Replace 2 by what your engine does. Never in here: speed. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void die(const char *what, const char *thing) { fprintf(stderr, "%s: %s\n", what, thing); exit(1); }
static void *room(size_t bytes) { void *p = calloc(bytes + 1, 1); if (!p) die("no memory", "calloc"); return p; }
static const char *format(char *text, const char *pattern, ...) {
    va_list list; va_start(list, pattern); vsnprintf(text, 256, pattern, list); va_end(list); return text;
}

/* ---- 1. JSON: a tree of nodes. safetensors: u64 length, JSON header, data. ---- */

typedef struct Node { struct Node *child, *next; char *key, *text; } Node; /* text: of a string or number, unquoted */

static void space(char **at) { while (**at && strchr(" \t\r\n,:", **at)) ++*at; }
static char *string(char **at) { /* what it uses has no escapes; a path may have, and is passed over */
    char *begin = ++*at; while (**at && **at != '"') *at += **at == '\\' && (*at)[1] ? 2 : 1;
    if (**at) *(*at)++ = 0;
    return begin;
}
static Node *json(char **at) {
    Node *node = room(sizeof *node), **last = &node->child; space(at);
    if (**at == '"') { node->text = string(at); return node; }
    if (**at != '{' && **at != '[') { /* a number or word ends before a delimiter; the parent copies no text */
        size_t length = strcspn(*at, ",]} \t\r\n"); node->text = room(length);
        memcpy(node->text, *at, length); *at += length; return node;
    }
    int object = *(*at)++ == '{'; space(at);
    while (**at && **at != '}' && **at != ']') {
        char *key = NULL; if (object) { if (**at != '"') die("no JSON", *at); key = string(at); }
        *last = json(at); (*last)->key = key; last = &(*last)->next; space(at);
    }
    if (**at) ++*at;
    return node;
}
static Node *find(Node *object, const char *key) { /* NULL where it is absent, or null */
    for (Node *n = object ? object->child : NULL; n; n = n->next)
        if (n->key && !strcmp(n->key, key)) return n->text && !strcmp(n->text, "null") ? NULL : n;
    return NULL;
}
static const char *word(Node *object, const char *key) {
    Node *n = find(object, key); if (!n || !n->text) die("not in the JSON", key); return n->text;
}

typedef struct { const char *name, *dtype; size_t shape[3], dims, bytes; char *data; } Tensor;
typedef struct { Tensor *at; size_t count, held; } Table;

static char *slurp(const char *folder, const char *name, size_t *size) {
    char path[4096]; snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb"); if (!file) die("cannot be opened", path);
    fseek(file, 0, SEEK_END); *size = (size_t)ftell(file); rewind(file);
    char *data = room(*size); if (fread(data, 1, *size, file) != *size) die("cannot be read", path);
    fclose(file); return data;
}
static Tensor *add(Table *table, const char *name, const char *dtype, size_t a, size_t b, size_t c, size_t dims) {
    if (table->count == table->held) {
        table->held = table->held * 2 + 64; table->at = realloc(table->at, table->held * sizeof(Tensor));
        if (!table->at) die("no memory", name);
    }
    Tensor *t = &table->at[table->count++]; size_t item = dtype[1] == '8' ? 1 : dtype[1] == '6' ? 8 : 4;
    char *own = room(strlen(name)); strcpy(own, name);
    *t = (Tensor){own, dtype, {a, b, c}, dims, a * b * c * item, NULL}; return t;
}
static void load(Table *table, const char *folder, const char *name) {
    size_t size; char *file = slurp(folder, name, &size); uint64_t length; memcpy(&length, file, 8);
    char *text = room(length); memcpy(text, file + 8, length);
    for (Node *n = json(&text)->child; n; n = n->next) if (strcmp(n->key, "__metadata__")) {
        size_t shape[3] = {1, 1, 1}, dims = 0;
        for (Node *s = find(n, "shape")->child; s && dims < 3; s = s->next) shape[dims++] = strtoul(s->text, NULL, 10);
        Tensor *t = add(table, n->key, word(n, "dtype"), shape[0], shape[1], shape[2], dims);
        t->data = file + 8 + length + strtoull(find(n, "data_offsets")->child->text, NULL, 10);
    }
}
static void save(Table *table, const char *path) {
    char *header = room(table->count * 320 + 16), *end = header; size_t offset = 0;
    for (size_t i = 0; i < table->count; ++i) {
        Tensor *t = &table->at[i];
        end += sprintf(end, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? ',' : '{', t->name, t->dtype);
        for (size_t d = 0; d < t->dims; ++d) end += sprintf(end, "%s%zu", d ? "," : "", t->shape[d]);
        end += sprintf(end, "],\"data_offsets\":[%zu,%zu]}", offset, offset + t->bytes); offset += t->bytes;
    }
    strcpy(end, table->count ? "}" : "{}"); uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb"); if (!file) die("cannot be written", path);
    fwrite(&length, 8, 1, file); fwrite(header, 1, length, file);
    for (size_t i = 0; i < table->count; ++i) fwrite(table->at[i].data, 1, table->at[i].bytes, file);
    if (fclose(file)) die("cannot be written", path);
}
static Tensor *get(Table *table, const char *name) {
    for (size_t i = 0; i < table->count; ++i) if (!strcmp(table->at[i].name, name)) return &table->at[i];
    die("no such tensor", name); return NULL;
}

/* ---- 2. The operations: [tokens, width] arrays, float32 between them, double inside. ---- */

static Table model, given, out;
static size_t vocab, hidden, inter, layers, heads, kv_heads, head_dim;
static int sub_norms, tied, silu, divide; static double eps, theta;

static float *floats(size_t n) { return room(n * sizeof(float)); }
static float *weight(const char *name) { return (float *)get(&model, name)->data; }
static float *embed(const int64_t *tokens, size_t n) {
    float *x = floats(n * hidden), *table = weight("embedding");
    for (size_t t = 0; t < n; ++t) memcpy(x + t * hidden, table + (size_t)tokens[t] * hidden, hidden * sizeof *x);
    return x;
}
static float *rms_norm(const float *x, const char *name, size_t n, size_t width) {
    float *y = floats(n * width), *gain = weight(name);
    for (size_t t = 0; t < n; ++t) {
        double sum = 0; for (size_t i = 0; i < width; ++i) sum += (double)x[t * width + i] * x[t * width + i];
        double rms = sqrt(sum / (double)width + eps);
        for (size_t i = 0; i < width; ++i) y[t * width + i] = (float)(x[t * width + i] / rms * gain[i]);
    }
    return y;
}
static int8_t *quantize(const float *x, size_t n, size_t width, float *scale) { /* int8 by absmax, half to even */
    int8_t *codes = room(n * width);
    for (size_t t = 0; t < n; ++t) {
        float most = 1e-5f; for (size_t i = 0; i < width; ++i) most = fmaxf(most, fabsf(x[t * width + i]));
        scale[t] = 127.0f / most;
        for (size_t i = 0; i < width; ++i) codes[t * width + i] = (int8_t)rintf(x[t * width + i] * scale[t]);
    }
    return codes;
}
static int32_t *accumulate(const int8_t *codes, const Tensor *trits, size_t n) {
    size_t rows = trits->shape[0], width = trits->shape[1]; int32_t *acc = room(n * rows * sizeof *acc);
    for (size_t t = 0; t < n; ++t) for (size_t r = 0; r < rows; ++r) {
        const int8_t *w = (int8_t *)trits->data + r * width, *c = codes + t * width; int32_t sum = 0;
        for (size_t i = 0; i < width; ++i) sum += c[i] * w[i];
        acc[t * rows + r] = sum;
    }
    return acc;
}
static float *apply_scales(const int32_t *acc, const float *scale, float w, size_t n, size_t rows) {
    float *y = floats(n * rows);
    for (size_t i = 0; i < n * rows; ++i) { float v = (float)acc[i] / scale[i / rows]; y[i] = divide ? v / w : v * w; }
    return y;
}
static float *rope(const float *x, size_t n, size_t count, size_t start) { /* half rotation, as GPT-NeoX */
    float *y = floats(n * count * head_dim); size_t half = head_dim / 2;
    for (size_t h = 0; h < n * count; ++h) for (size_t i = 0; i < half; ++i) {
        double angle = (double)(start + h / count) * pow(theta, -2.0 * (double)i / (double)head_dim);
        double a = x[h * head_dim + i], b = x[h * head_dim + half + i];
        y[h * head_dim + i] = (float)(a * cos(angle) - b * sin(angle));
        y[h * head_dim + half + i] = (float)(b * cos(angle) + a * sin(angle));
    }
    return y;
}
static float *softmax(const float *q, const float *k, size_t n, size_t start) { /* [heads, tokens, keys], causal */
    size_t keys = start + n; float *p = floats(heads * n * keys); double *row = room(keys * sizeof *row);
    for (size_t h = 0; h < heads; ++h) for (size_t t = 0; t < n; ++t) {
        double most = -INFINITY, sum = 0;
        for (size_t s = 0; s <= start + t; ++s) {
            row[s] = 0; const float *key = k + (s * kv_heads + h * kv_heads / heads) * head_dim;
            for (size_t i = 0; i < head_dim; ++i) row[s] += (double)q[(t * heads + h) * head_dim + i] * key[i];
            row[s] /= sqrt((double)head_dim); most = fmax(most, row[s]);
        }
        for (size_t s = 0; s <= start + t; ++s) sum += row[s] = exp(row[s] - most);
        for (size_t s = 0; s <= start + t; ++s) p[(h * n + t) * keys + s] = (float)(row[s] / sum);
    }
    free(row); return p;
}
static float *mix(const float *p, const float *v, size_t n, size_t keys) {
    float *y = floats(n * heads * head_dim);
    for (size_t h = 0; h < heads; ++h) for (size_t t = 0; t < n; ++t) for (size_t i = 0; i < head_dim; ++i) {
        double sum = 0;
        for (size_t s = 0; s < keys; ++s)
            sum += (double)p[(h * n + t) * keys + s] * v[(s * kv_heads + h * kv_heads / heads) * head_dim + i];
        y[(t * heads + h) * head_dim + i] = (float)sum;
    }
    return y;
}
static float *activate(const float *gate, const float *up, size_t n) {
    float *y = floats(n);
    for (size_t i = 0; i < n; ++i) {
        double g = gate[i]; y[i] = (float)((silu ? g / (1 + exp(-g)) : g > 0 ? g * g : 0) * up[i]);
    }
    return y;
}
static float *plus(const float *a, const float *b, size_t n) {
    float *y = floats(n); for (size_t i = 0; i < n; ++i) y[i] = a[i] + b[i]; return y;
}
static float *logits(const float *x, size_t n) {
    float *y = floats(n * vocab), *head = weight(tied ? "embedding" : "head");
    for (size_t t = 0; t < n; ++t) for (size_t v = 0; v < vocab; ++v) {
        double sum = 0; for (size_t i = 0; i < hidden; ++i) sum += (double)x[t * hidden + i] * head[v * hidden + i];
        y[t * vocab + v] = (float)sum;
    }
    return y;
}

/* ---- 3. The forward pass. ``show`` keeps what it is given under ``trace/<name>``; the exit frees all memory. ---- */

static int tracing;
static void *show(const char *name, const char *dtype, size_t a, size_t b, size_t c, size_t dims, void *data) {
    char text[256]; if (tracing) add(&out, format(text, "trace/%s", name), dtype, a, b, c, dims)->data = data;
    return data;
}
static float *keep(const char *at, const char *what, size_t n, size_t width, float *x) {
    char text[256]; return show(format(text, "%s%s", at, what), "F32", n, width, 1, 2, x);
}
typedef struct { int8_t *codes; float *scale; } Quantized;
static Quantized quantized(const char *at, const char *what, const float *x, size_t n, size_t width) {
    char text[256]; Quantized q = {NULL, floats(n)}; q.codes = quantize(x, n, width, q.scale);
    show(format(text, "%s%s.codes", at, what), "I8", n, width, 1, 2, q.codes);
    show(format(text, "%s%s.scale", at, what), "F32", n, 1, 1, 1, q.scale); return q;
}
static float *linear(const char *at, const char *what, Quantized x, size_t n) {
    char text[256]; Tensor *trits = get(&model, format(text, "%s%s.trits", at, what)); size_t rows = trits->shape[0];
    int32_t *acc = accumulate(x.codes, trits, n); show(format(text, "%s%s.acc", at, what), "I32", n, rows, 1, 2, acc);
    float *y = apply_scales(acc, x.scale, *weight(format(text, "%s%s.scale", at, what)), n, rows);
    return show(format(text, "%s%s.out", at, what), "F32", n, rows, 1, 2, y);
}
static float *norm(const char *at, const char *what, const float *x, size_t n, size_t width) {
    char text[256]; return keep(at, what, n, width, rms_norm(x, format(text, "%s%s", at, what), n, width));
}
typedef struct { float **keys, **values; } Cache; /* [layer][position, kv_heads, head_dim] */
static Cache cache(size_t positions) {
    Cache c = {room(layers * sizeof(float *)), room(layers * sizeof(float *))};
    for (size_t l = 0; l < layers; ++l) {
        c.keys[l] = floats(positions * kv_heads * head_dim); c.values[l] = floats(positions * kv_heads * head_dim);
    }
    return c;
}
static float *forward(const int64_t *tokens, size_t n, size_t start, Cache c) { /* logits of n tokens at start */
    size_t wide = heads * head_dim, narrow = kv_heads * head_dim;
    float *x = keep("", "embedding", n, hidden, embed(tokens, n));
    for (size_t l = 0; l < layers; ++l) {
        char at[64], text[256]; snprintf(at, sizeof at, "layers.%zu.", l);
        Quantized in = quantized(at, "attn_in", norm(at, "attn_norm", x, n, hidden), n, hidden);
        float *q = linear(at, "q", in, n), *k = linear(at, "k", in, n), *v = linear(at, "v", in, n);
        q = show(format(text, "%sq_rope", at), "F32", n, heads, head_dim, 3, rope(q, n, heads, start));
        k = show(format(text, "%sk_rope", at), "F32", n, kv_heads, head_dim, 3, rope(k, n, kv_heads, start));
        memcpy(c.keys[l] + start * narrow, k, n * narrow * sizeof *k);
        memcpy(c.values[l] + start * narrow, v, n * narrow * sizeof *v);
        float *p = softmax(q, c.keys[l], n, start);
        show(format(text, "%sprobs", at), "F32", heads, n, start + n, 3, p);
        float *a = keep(at, "attn_mix", n, wide, mix(p, c.values[l], n, start + n));
        if (sub_norms) a = norm(at, "attn_sub_norm", a, n, wide);
        a = linear(at, "o", quantized(at, "o_in", a, n, wide), n);
        x = keep(at, "attn_residual", n, hidden, plus(x, a, n * hidden));
        in = quantized(at, "ffn_in", norm(at, "ffn_norm", x, n, hidden), n, hidden);
        float *gate = linear(at, "gate", in, n), *up = linear(at, "up", in, n);
        float *f = keep(at, "ffn_act", n, inter, activate(gate, up, n * inter));
        if (sub_norms) f = norm(at, "ffn_sub_norm", f, n, inter);
        f = linear(at, "down", quantized(at, "down_in", f, n, inter), n);
        x = keep(at, "ffn_residual", n, hidden, plus(x, f, n * hidden));
    }
    return keep("", "logits", n, vocab, logits(norm("", "final_norm", x, n, hidden), n));
}

/* ---- 4. Requests. ---- */

static int64_t *numbers(Node *list, size_t *n) { /* of no list: none */
    Node *first = list ? list->child : NULL; *n = 0; for (Node *i = first; i; i = i->next) ++*n;
    int64_t *v = room(*n * sizeof *v), *end = v;
    for (Node *i = first; i; i = i->next) *end++ = strtol(i->text, NULL, 10);
    return v;
}
static float *session(Node *tokens, Node *chunks) { /* logits at all tokens, read in chunks */
    size_t n, count = 1, start = 0;
    int64_t *ids = numbers(tokens, &n), whole = (int64_t)n, *sizes = chunks ? numbers(chunks, &count) : &whole;
    Cache own = cache(n); float *rows = floats(n * vocab);
    for (size_t c = 0; c < count; start += (size_t)sizes[c++]) {
        float *chunk = forward(ids + start, (size_t)sizes[c], start, own);
        memcpy(rows + start * vocab, chunk, (size_t)sizes[c] * vocab * sizeof *rows);
    }
    return rows;
}
static Tensor *input(Node *request, const char *role) { return get(&given, word(find(request, "inputs"), role)); }
static float *in(Node *request, const char *role) { return (float *)input(request, role)->data; }
static void answer(Node *r, const char *role, const char *dtype, size_t a, size_t b, size_t c, size_t dims, void *p) {
    char text[256]; add(&out, format(text, "operation/%s/%s", word(r, "id"), role), dtype, a, b, c, dims)->data = p;
}
static void operation(Node *r) {
    const char *name = word(r, "operation"), *what = strrchr(name, '.') ? strrchr(name, '.') + 1 : name; char text[256];
    Tensor *first = get(&given, find(r, "inputs")->child->text); size_t n = first->shape[0], width = first->shape[1];
    if (strstr(what, "norm")) answer(r, "x", "F32", n, width, 1, 2, rms_norm(in(r, "x"), name, n, width));
    else if (strstr(what, "_in")) {
        float *scale = floats(n); answer(r, "codes", "I8", n, width, 1, 2, quantize(in(r, "x"), n, width, scale));
        answer(r, "scale", "F32", n, 1, 1, 1, scale);
    } else if (strstr(what, "residual")) answer(r, "x", "F32", n, width, 1, 2, plus(in(r, "a"), in(r, "b"), n * width));
    else if (!strcmp(what, "embedding")) answer(r, "x", "F32", n, hidden, 1, 2, embed((int64_t *)first->data, n));
    else if (!strcmp(what, "logits")) answer(r, "x", "F32", n, vocab, 1, 2, logits(in(r, "x"), n));
    else if (!strcmp(what, "ffn_act"))
        answer(r, "x", "F32", n, width, 1, 2, activate(in(r, "gate"), in(r, "up"), n * width));
    else if (!strcmp(what, "probs")) answer(r, "x", "F32", heads, n, n, 3, softmax(in(r, "q"), in(r, "k"), n, 0));
    else if (!strcmp(what, "attn_mix")) {
        n = input(r, "v")->shape[0];
        answer(r, "x", "F32", n, heads * head_dim, 1, 2, mix(in(r, "probs"), in(r, "v"), n, n));
    } else if (!strcmp(what, "rope")) {
        answer(r, "q", "F32", n, heads, head_dim, 3, rope(in(r, "q"), n, heads, 0));
        answer(r, "k", "F32", n, kv_heads, head_dim, 3, rope(in(r, "k"), n, kv_heads, 0));
    } else { /* q k v o gate up down */
        Tensor *trits = get(&model, format(text, "%s.trits", name)); size_t rows = trits->shape[0];
        int32_t *acc = accumulate((int8_t *)input(r, "codes")->data, trits, n);
        float w = *weight(format(text, "%s.scale", name));
        answer(r, "acc", "I32", n, rows, 1, 2, acc);
        answer(r, "out", "F32", n, rows, 1, 2, apply_scales(acc, in(r, "scale"), w, n, rows));
    }
}

/* ---- 5. Greedy text: the likeliest token again and again. Requests that draw tokens are left out. ---- */

static double option(Node *options, const char *key, double otherwise) {
    Node *n = find(options, key); return n && n->text ? strtod(n->text, NULL) : otherwise;
}
static size_t likeliest(float *row, const int64_t *text, size_t n, Node *options) { /* of equal logits the lowest id */
    Node *bias = find(options, "logit_bias"); double all = option(bias, "all", 0), most = -INFINITY;
    double penalty = option(options, "repetition_penalty", 1); char *seen = room(vocab); size_t best = 0;
    for (size_t i = 0; i < n; ++i) seen[text[i]] = 1;
    for (size_t v = 0; v < vocab; ++v) row[v] += (float)all;
    for (Node *b = bias ? bias->child : NULL; b; b = b->next) if (strcmp(b->key, "all"))
        row[strtoul(b->key, NULL, 10) % vocab] += (float)strtod(b->text, NULL);
    for (size_t v = 0; v < vocab; ++v) {
        double x = row[v]; if (seen[v]) x = x > 0 ? x / penalty : x * penalty;
        if (x > most) { most = x; best = v; }
    }
    return best;
}
static void generate(FILE *file, Node *prompt, Node *eos) { /* a JSON list of ids, the last one perhaps a stop */
    Node *options = prompt->next->next, *stop = find(options, "stop"); if (!stop) stop = eos;
    size_t n, stops, read = 0, limit = strtoul(prompt->next->text, NULL, 10); int64_t *ids = numbers(prompt, &n);
    int64_t *ends = numbers(stop, &stops), *text = room((n + limit) * sizeof *text); memcpy(text, ids, n * sizeof *ids);
    Cache own = cache(n + limit); int done = !limit;
    for (size_t end = n; !done; ++end) {
        float *rows = forward(text + read, end - read, read, own);
        text[end] = (int64_t)likeliest(rows + (end - read - 1) * vocab, text, end, options); read = end;
        fprintf(file, "%s%lld", end > n ? ", " : "[", (long long)text[end]);
        done = end + 1 == n + limit; for (size_t i = 0; i < stops; ++i) done = done || ends[i] == text[end];
    }
    fputs(limit ? "]" : "[]", file);
}
static void behaviours(FILE *file, Node *list, Node *eos) {
    const char *before = "";
    for (Node *r = list ? list->child : NULL; r; r = r->next) {
        if (strcmp(word(r, "method"), "generate")) continue;
        Node *prompt = find(r, "arguments")->child, *options = prompt->next->next;
        if (option(options, "temperature", 0) > 0) continue;
        fprintf(file, "%s\"%s\": ", before, word(r, "id")); generate(file, prompt, eos); before = ", ";
    }
}

int main(int count, char **arguments) {
    if (count < 3) die("usage", "engine INPUTS OUTPUTS");
    const char *inputs = arguments[count - 2]; char path[4096]; size_t size, n;
    char *text = slurp(inputs, "config.json", &size); Node *c = json(&text);
    text = slurp(inputs, "requests.json", &size); Node *requests = json(&text);
    if (strcmp(word(requests, "protocol"), "tritgold.command/1")) die("another protocol", word(requests, "protocol"));
    struct { const char *key; size_t *to; } sizes[] = {{"vocab", &vocab}, {"hidden", &hidden}, {"inter", &inter},
        {"layers", &layers}, {"heads", &heads}, {"kv_heads", &kv_heads}, {"head_dim", &head_dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) *sizes[i].to = strtoul(word(c, sizes[i].key), NULL, 10);
    sub_norms = !strcmp(word(c, "sub_norms"), "true"); tied = !strcmp(word(c, "tied_head"), "true");
    silu = !strcmp(word(c, "activation"), "silu"); divide = !strcmp(word(c, "scale_rule"), "divide");
    eps = strtod(word(c, "norm_eps"), NULL); theta = strtod(word(c, "rope_theta"), NULL);
    load(&model, inputs, "model.safetensors"); load(&given, inputs, "inputs.safetensors");

    Node *list = find(requests, "operations"), *trace = find(requests, "trace");
    for (Node *r = list ? list->child : NULL; r; r = r->next) operation(r);
    double prefill_seconds = 0, step_seconds = 0;
    if (trace) { tracing = 1; session(find(trace, "tokens"), NULL); tracing = 0; }
    list = find(requests, "logits");
    for (Node *r = list ? list->child : NULL; r; r = r->next) {
        char name[256]; numbers(find(r, "tokens"), &n); format(name, "logits/%s", word(r, "id"));
        clock_t began = clock();
        float *rows = session(find(r, "tokens"), find(r, "chunks"));
        double took = (double)(clock() - began) / CLOCKS_PER_SEC; /* of this one thread's CPU */
        if (!strcmp(word(r, "id"), "prefill")) prefill_seconds = took;
        if (!strcmp(word(r, "id"), "steps")) step_seconds = took / (double)n;
        add(&out, name, "F32", n, vocab, 1, 2)->data = (char *)rows;
    }
    snprintf(path, sizeof path, "%s/outputs.safetensors", arguments[count - 1]); save(&out, path);
    snprintf(path, sizeof path, "%s/answer.json", arguments[count - 1]);
    FILE *file = fopen(path, "w"); if (!file) die("cannot be written", path);
    fprintf(file, "{\"protocol\": \"tritgold.command/1\", \"name\": \"engine.c\", \"versions\": {\"C\": \"%ld\"}",
            __STDC_VERSION__);
    if (prefill_seconds > 0 && step_seconds > 0)
        fprintf(file, ", \"seconds\": {\"prefill\": %.9g, \"step\": %.9g}", prefill_seconds, step_seconds);
    fputs(", \"behaviours\": {", file); behaviours(file, find(requests, "behaviours"), find(c, "eos"));
    fputs("}}\n", file);
    return fclose(file) ? 1 : 0;
}
