"""The codes of errors: what each means, and what to do. docs/errors.md is made from them."""

from __future__ import annotations

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "The command line and the config": {
        "argument": (
            "An argument of the command line is invalid, or a run would reject the query of `dmqr try`.",
            "Correct it as the line says; the query comes last, in quotes.",
        ),
        "config-file": (
            "The config does not exist, is not a YAML mapping in UTF-8, or has one key twice.",
            "Correct the named line; configs/quickstart.yaml is an example.",
        ),
        "config-value": (
            "A key or kind is unknown, a required key is missing, or a value has the wrong type, is out of range or "
            "contradicts another.",
            "Correct it as the line says; docs/config.md lists all keys. Make two retrievers of one with `analyzer` (BM25) and "
            "`encoder` (dense). "
            "`fuse.weights.original: 0` keeps the original out of the results.",
        ),
        "plugin": ("Code that the config names is missing, or fails.", "Correct it: [Code](plugins.md)."),
        "prices": (
            "`limits.max_cost_usd` is set without a prices.yaml beside the config, or prices.yaml is invalid.",
            "Add or correct it; configs/prices.yaml is an example.",
        ),
        "judgements": (
            "The relevance judgements cannot be read, or those that were given name nothing of the run's log.",
            "Use a text file with tab-separated columns log_id (or what `evaluate.key` says), doc_id, grade, or TREC's "
            "four; each pair once.",
        ),
        "test-collection": (
            "A data set (`beir:`, `irds:`, `topics:`) is not there, lacks what is to be read, or cannot be fetched, or its "
            "package is missing.",
            "Correct its name as the line says, or install the package; [their forms](test-collections.md).",
        ),
    },
    "The log": {
        "log-empty": (
            "The files of the log have no row.",
            "Correct `log.path`; `log.allow_empty: true` where a day may have none.",
        ),
        "log-files": (
            "No file of the log is where the config says, no row can be used, or a file is damaged, not readable or not of "
            "the form that its name says (Parquet, JSON lines, CSV).",
            "Correct `log.path`, the column, `--date` or the named line, or raise `log.max_chars`; names with a leading `.` or "
            "`_` are skipped.",
        ),
        "log-column": (
            "A column that the config names is missing, duplicated or of the wrong type, or has an id or a count that is "
            "invalid.",
            "Correct the row, or name another column: text for queries, text or whole numbers for ids, whole numbers for "
            "counts; without unique ids `id_column: null`.",
        ),
    },
    "Strategies and engines": {
        "strategy": (
            "A strategy does not exist, is listed twice, or has an invalid file. `original` must not be listed.",
            "Use one of the known strategies, or correct the file: [Adding a strategy](strategies.md#adding-a-strategy).",
        ),
        "selection": (
            "A file of rules or demonstrations is wrong, or names a strategy that the pool does not have.",
            "Correct the file or `rewrite.select`, or add the strategy to `rewrite.strategies`.",
        ),
        "prompt": (
            "The joint prompt, or that of a step (`answer.prompt`), does not exist, is invalid, or has an unknown variable.",
            "Correct the file: [joint prompts](strategies.md#a-joint-prompt-of-your-own), [steps](answers.md#what-is-asked).",
        ),
        "engine-setting": (
            "The engine lacks a setting or does not accept one, or the environment names a proxy that is not an http proxy.",
            "Correct or remove it. `base_url` is like http://host:8000/v1; `api_key_env` names an environment variable.",
        ),
        "server-access": (
            "The address, key or certificate of a server (model, Elasticsearch, web search) is missing or not accepted, the "
            "key lacks a right, or its account has no credit.",
            "Set the named variable on every node with a worker that uses it. Elasticsearch wants the rights read and "
            "view_index_metadata, to build manage.",
        ),
        "server-away": (
            "A server (model, Elasticsearch, web search) does not answer before the timeout, or not as one.",
            "Start it, correct its address, or lower `max_in_flight`. If TLS fails, use http:, or set SSL_CERT_FILE to the "
            "authority's certificate.",
        ),
        "package-missing": (
            "A Python package that the config needs is not installed.",
            "Run the named command on every node with a worker that uses it.",
        ),
        "run-file": (
            "A file of recorded completions, or a run file of TREC, cannot be read, has a wrong line, or no topic of the log.",
            "Correct the named line or the path, or let `log.id_column` name the column of its topics.",
        ),
    },
    "Corpus, index and models": {
        "corpus": (
            "There is no corpus at `corpus.path` or `--corpus`, or a file of it cannot be read or has invalid columns or ids.",
            "Give a table, a document or a folder of them, local or on S3. Every document needs a unique `doc_id`, in "
            "Elasticsearch of at most 512 bytes.",
        ),
        "index-missing": (
            "The index does not exist, is incomplete, or has no copy on this machine.",
            "Name its corpus (`corpus.path`), or build it with `dmqr index`; a run copies an index of S3 to the machine.",
        ),
        "index-other": (
            "The index is damaged, of another corpus, or has another encoder, analyzer, field, type or format; or two "
            "retrievers, or a reranker, want one index in different ways.",
            "Correct the config, give each an index of its own, or build it again with `dmqr index`. A reranker reads the "
            "texts of the first retriever, so its field must be the text.",
        ),
        "model": (
            "A model's or an adapter's files cannot be found or loaded, a server does not have the model, or it "
            "is no encoder or reranker, or lacks a configured key, length, layer or precision.",
            "Use a folder, `package:NAME`, a hub name or a model that the server lists, or correct the named key; offline, "
            "fetch it into the hub's cache first (`hf download`). "
            "`trust_remote_code: true` runs code from the model's folder.",
        ),
        "elastic-refused": (
            "Elasticsearch refuses a query, a document or an index, or is of another version than the client.",
            "Correct the config or the document as the line says, or use a server or a client of the named version.",
        ),
    },
    "Storage and the run's folder": {
        "storage-refused": (
            "The address is invalid; S3 refuses the credentials, rights, region, bucket or certificate, or lacks an "
            "operation (`If-None-Match`); the endpoint has never answered; or a folder cannot be written, is in use, or is not "
            "seen by all nodes.",
            "Correct what the line names, on all nodes: s3://BUCKET/FOLDER, an AWS_ variable, a right, the bucket, the "
            "clock of the machine; or use another store or shared folder.",
        ),
        "storage-away": ("Storage did not answer successfully for two minutes (exit code 1).", "Run the same command again."),
        "disk-space": (
            "Memory or disk of this machine ran out, or its folder for copies of S3 objects cannot be used.",
            "Free space, or set TMPDIR, or DMQR_CACHE, to another folder.",
        ),
        "run-missing": (
            "The folder has no run, one that stopped before its log was read, or one that kept no lists.",
            "Use the folder in the last line of `dmqr run`; run the job again, for lists with `keep_runs: true`.",
        ),
        "run-damaged": (
            "A file of the run's folder is missing, was changed, or is of another version of dmqr.",
            "Restore it; a damaged commit (commits/) may be removed: its shard is done again.",
        ),
        "run-changed": (
            "The log or the index was replaced while it was read, or has changed since the run's start.",
            "Run the same command again; where it has changed since the start, restore it, name the index or "
            "commit of the line in the config, or start a new run with another `--label`.",
        ),
        "run-held": (
            "Another driver works on this run, or has taken it over, another process builds this index or maintains this "
            "store, or this process does another job already.",
            "Wait for it, or stop it; start a second job in a process of its own.",
        ),
        "internal-error": (
            "Counts of input and output rows do not match, or a stage got or returned a table of the wrong schema; the run "
            "is not marked as finished.",
            "Start it again under another `name`, and report a bug.",
        ),
    },
    "Export": {
        "export": (
            "A version of this run is there already with other rows, or is damaged; or it is outside of a bound of `publish` "
            "and not promoted (exit code 1).",
            "Remove its folder and export again, or give another `--to`; a bound is set with `--set publish.NAME=VALUE`.",
        ),
    },
    "The cluster": {
        "cluster-away": (
            "Ray does not start or answer, no job server answers, or it refuses a token.",
            "`ray start --head`; RAY_AUTH_MODE=token where it asks for one; or work without it: `--set cluster.address=none`.",
        ),
        "cluster-small": (
            "The pools request more than the cluster or a single node has and may scale to, have more workers than "
            "requests in flight, or a device that does not exist or has too little memory.",
            "Lower `cluster.<stage>.workers`, `.cpus` or `.gpus`, or `rerank.max_length`, add nodes, or raise `max_in_flight`.",
        ),
        "worker-died": (
            "Workers died repeatedly under one shard or query that they had alone, or vLLM died three times without an answer.",
            "Look at the log; often memory ran out: give each worker more, lower `gpu_memory_utilization` or "
            "`max_model_len`, or take the query that is named out of the log.",
        ),
    },
    "A run that stopped early": {
        "stopped-errors": (
            "More queries failed than `limits.error_rate` allows.",
            "Look at errors/ or the report, and correct the cause: the same command asks again those that an outage "
            "failed; or use the named one, which raises the limit.",
        ),
        "stopped-cost": ("The cost exceeds `limits.max_cost_usd`.", "Use the named command, which raises the limit."),
        "stopped-stall": ("No commit or heartbeat for `limits.stall_minutes`.", "Look at the log; run the same command again."),
        "stopped-failure": (
            "A worker or the driver met an error that none of these codes is of, the system refused a file, or some shards "
            "were not committed.",
            "Do what the line says, or look at the log and report a bug; run the same command again.",
        ),
        "interrupted": ("SIGINT (Ctrl-C) or SIGTERM was received.", "Run the same command again."),
    },
}
"""Title -> code -> meaning, remedy."""

CODES = {code: row for group in GROUPS.values() for code, row in group.items()}
"""All codes."""
