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
        "config-key": ("A key or a kind does not exist.", "Use the suggestion or a known name; docs/config.md lists all."),
        "config-missing": ("A required key is missing.", "Add it."),
        "config-value": (
            "A value has the wrong type, is out of range or names something that is not in the config, or two values "
            "contradict each other.",
            "Correct it as the line says. Make two retrievers of one with `analyzer` (BM25) and `encoder` (dense). "
            "`fuse.weights.original: 0` keeps the original out of the results.",
        ),
        "plugin": ("Code that the config names is missing, or fails.", "Correct it: [Code](plugins.md)."),
        "prices": (
            "`limits.max_cost_usd` is set without a prices.yaml beside the config, or prices.yaml is invalid.",
            "Add or correct it; configs/prices.yaml is an example.",
        ),
        "judgements": (
            "The relevance judgements cannot be read, or those that were given name nothing of the run's log.",
            "Use a text file with tab-separated columns log_id (or what `evaluate.key` says), doc_id, grade, or TREC's four; "
            "each pair once.",
        ),
        "test-collection": (
            "A data set (`beir:`, `irds:`, `topics:`) is not there, lacks what is to be read, or cannot be fetched, or its "
            "package is missing.",
            "Correct its name as the line says, or install the package; [their forms](test-collections.md).",
        ),
    },
    "The log": {
        "log-missing": (
            "No file of the log is where the config says, or a folder holds JSON lines beside CSV.",
            "Correct `log.path` or `--date`; names with a leading `.` or `_` are skipped; on S3: s3://BUCKET/FOLDER.",
        ),
        "log-empty": (
            "The log has no rows, or all rows were rejected.",
            "Correct the path or the column, or raise `log.max_chars`.",
        ),
        "log-unreadable": (
            "A file of the log is damaged, not of the form that its name says (Parquet, JSON lines, CSV), or not readable.",
            "Correct the named line, copy or write the file again, or change its permissions.",
        ),
        "log-column": (
            "A column that the config names is missing, duplicated or of the wrong type, or one id has several queries.",
            "Name another column: text for queries, text or whole numbers for ids, whole numbers for counts; without unique "
            "ids `id_column: null`.",
        ),
        "log-value": (
            "A row has an id that is not UTF-8, or a count that is negative or larger than a 64-bit number.",
            "Correct the row, use another column, or `count_column: null`.",
        ),
        "log-changed": ("A file of the log was replaced while it was read.", "Run the same command again."),
        "log-space": ("Memory or disk ran out while grouping.", "Free space (TMPDIR), or do what the line says."),
    },
    "Strategies, prompts and engines": {
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
        "guard-file": (
            "The overrides or the vocabulary cannot be read, has a wrong row, or was changed while the job ran.",
            "Correct the file as the line says; the rules: [Guards](strategies.md#guards).",
        ),
        "engine-setting": (
            "The engine lacks a setting or does not accept one, or the environment names a proxy that is not an http proxy.",
            "Correct or remove it. `base_url` is like http://host:8000/v1; `api_key_env` names an environment variable.",
        ),
        "engine-model": (
            "The engine's model, adapter or tokenizer cannot be found or loaded, or a server does not have a model.",
            "Use a model that the server lists, a folder or a hub name; `rewrite.engine.tokenizer` sets another tokenizer.",
        ),
        "engine-access": (
            "The API key is not set, the server refuses it, or its account has no credit.",
            "Set the named variable on every node with a worker that uses it; look at the account.",
        ),
        "engine-away": (
            "The server of an engine, encoder, reranker or web search does not answer, or not as one.",
            "Start it, or correct `base_url`: of models it usually ends in /v1. If TLS fails, use http:, or set SSL_CERT_FILE"
            " to the authority's certificate.",
        ),
        "engine-died": (
            "vLLM died three times in a row without an answer, or the engine was closed.",
            "Look at the logs of Ray's workers; often memory ran out: lower `gpu_memory_utilization` or `max_model_len`. "
            "Run the same command again.",
        ),
        "recording": (
            "The file of recorded completions does not exist or is invalid.",
            "Correct the path or the named line; the format: [Engines](settings.md#engines).",
        ),
        "package-missing": (
            "A Python package that the config needs is not installed.",
            "Run the named command on every node with a worker that uses it.",
        ),
    },
    "Corpus, index and models": {
        "corpus-missing": (
            "There is no corpus at `corpus.path` or `--corpus`.",
            "Give a table, a document or a folder of them, local or on S3.",
        ),
        "corpus-invalid": (
            "A file of the corpus cannot be read, has invalid columns or ids, or has other columns than the rest.",
            "Copy it again, or correct it as the line says. Every document needs a unique `doc_id`, in Elasticsearch of at "
            "most 512 bytes.",
        ),
        "index-missing": (
            "The index does not exist, is incomplete, or has no copy on this machine.",
            "Name its corpus (`corpus.path`), or build it with `dmqr index`; a run copies an index of S3 to the machine.",
        ),
        "run-file": (
            "A run file of TREC (`kind: trec`, `ablate.runs`) cannot be read, has a wrong line, or no topic of the log.",
            "Correct the named line or the path, or let `log.id_column` name the column of its topics.",
        ),
        "index-damaged": ("Files of the index are missing or truncated.", "Build it again."),
        "index-other": (
            "The index is of another corpus than `corpus.path`, or has another encoder, analyzer, field, type or format.",
            "Correct the config, or build the index again with `dmqr index`. A reranker reads the texts of the first "
            "retriever, so its field must be the text.",
        ),
        "index-replaced": ("The index was replaced after the run was planned.", "Restore it, or start a new run."),
        "index-shared": (
            "Two retrievers use one index with different settings, or a reranker has indexes of different corpora.",
            "Give each its own index, or both the same settings; build all from one corpus, or set `rerank.kind: none`.",
        ),
        "index-place": (
            "The index cannot be built at the configured place.",
            "Use an empty folder with write permission, or an alias that is not the name of an index.",
        ),
        "index-busy": ("Another process is building this index.", "Wait for it, then run the same command again."),
        "index-failed": (
            "Building the index failed in a worker, or the index lacks documents.",
            "Look at the log; build it again.",
        ),
        "document-missing": ("The index lacks a document that the run needs.", "Build the index again from the same corpus."),
        "model-missing": (
            "The model's files do not exist or cannot be read.",
            "Use a folder, `package:NAME` or a hub name; offline, fetch them into the hub's cache first (`hf download`).",
        ),
        "model-unfit": (
            "The model is not an encoder or reranker, cannot be loaded with the installed libraries, or does not support a "
            "configured key, length, layer or precision.",
            "Use another model, or correct the named key. `trust_remote_code: true` runs code from the model's folder.",
        ),
        "device": (
            "The device does not exist or has too little memory.",
            "Correct `cluster.retrieve.gpus` or `cluster.rerank.gpus`, or lower `rerank.max_length`.",
        ),
    },
    "Elasticsearch": {
        "elastic-access": (
            "The address, key or certificate is missing or not accepted, or the key lacks a right.",
            "Set the named variable on every node with a worker that uses it. Searching needs the rights read and "
            "view_index_metadata, building needs manage.",
        ),
        "elastic-away": (
            "The server did not answer successfully before the timeout (`patience_minutes`).",
            "Start it, correct its address, or lower `max_in_flight`.",
        ),
        "elastic-version": (
            "The server is neither of the client's major version nor of the next one, or it is not Elasticsearch.",
            "Take a server of the named versions, install the named client, or correct the address.",
        ),
        "elastic-refused": (
            "The server refuses a query, a document or an index.",
            "Correct the config or the document as the line says.",
        ),
    },
    "Storage and the run's folder": {
        "storage-address": ("The address of storage is invalid.", "Use s3://BUCKET/FOLDER, or a folder of the file system."),
        "storage-refused": (
            "S3 refuses the credentials, rights, region, bucket or certificate, or lacks an operation (`If-None-Match`); or "
            "the endpoint has never answered.",
            "Correct what the line names, on all nodes: an AWS_ variable, a right, the bucket, the clock of the machine; or "
            "use another store.",
        ),
        "storage-unwritable": ("The folder cannot be written, or its storage has no create-only write.", "Use another folder."),
        "storage-unshared": ("Nodes do not see the output's folder.", "Use S3, or a folder that all nodes share."),
        "storage-cache": (
            "The folder for copies of S3 objects on this machine cannot be used.",
            "Free space there, or set DMQR_CACHE to another folder.",
        ),
        "storage-away": ("Storage did not answer successfully for two minutes (exit code 1).", "Run the same command again."),
        "run-missing": (
            "The folder has no run, or one that stopped before its log was read.",
            "Use the folder in the last line of `dmqr run`; run the job again.",
        ),
        "lists-missing": ("The run kept no lists.", "Run it again with `keep_runs: true`."),
        "run-damaged": (
            "A file of the run's folder is missing, was changed, or is of another version of dmqr.",
            "Restore it; a damaged commit (commits/) may be removed: its shard is done again.",
        ),
        "run-changed": (
            "The run's log or index has changed since its start.",
            "Restore it, or start a new run with another `--label`. Elasticsearch keeps the index before until the next build; "
            "the line has the settings that resume with it.",
        ),
        "run-held": (
            "Another driver works on this run, another process maintains this store, or this process does another job already.",
            "Wait for it, or stop it; start a second job in a process of its own.",
        ),
        "run-unbalanced": (
            "The counts of input and output rows do not match; the run is not marked as finished.",
            "Start it again under another `name`, and report a bug.",
        ),
    },
    "Export": {
        "export-version": (
            "A version of this run is there already with other rows, or is damaged.",
            "Remove its folder and export again, or give another `--to`.",
        ),
        "export-bound": (
            "A version is outside of a bound of `publish` (exit code 1); it is exported and not promoted.",
            "Look at the figures; a bound is set with `--set publish.NAME=VALUE`.",
        ),
    },
    "The cluster": {
        "cluster-away": ("No Ray, no job server answers, or it refuses a token.", "`ray start --head`; use `local` or `none`."),
        "cluster-small": (
            "The pools request more than the cluster or a single node has and may scale to, or have more workers than "
            "requests in flight.",
            "Lower `cluster.<stage>.workers`, `.cpus` or `.gpus`, add nodes, or raise `max_in_flight`.",
        ),
        "worker-died": (
            "Workers died repeatedly under one shard, or one query, that they had alone.",
            "Look at the log; often memory ran out: give each worker more, or take the query that is named out of the log.",
        ),
        "stage-table": ("A stage got or returned a table of the wrong schema.", "Report a bug."),
    },
    "A run that stopped early": {
        "stopped-errors": (
            "More queries failed than `limits.error_rate` allows.",
            "Look at errors/ or the report; correct the cause, or use the named command, which raises the limit.",
        ),
        "stopped-cost": ("The cost exceeds `limits.max_cost_usd`.", "Use the named command, which raises the limit."),
        "stopped-stall": ("No commit or heartbeat for `limits.stall_minutes`.", "Look at the log; run the same command again."),
        "stopped-lease": ("Another driver has taken the run over.", "Let it finish; if the line names a command, run that."),
        "stopped-failure": (
            "A worker or the driver met an error that none of these codes is of, or the system refused a file.",
            "Do what the line says, or look at the log and report a bug; run the same command again.",
        ),
        "stopped-open": ("Some shards were not committed.", "Look at the log; run the same command again."),
        "interrupted": ("SIGINT (Ctrl-C) or SIGTERM was received.", "Run the same command again."),
    },
}
"""Title -> code -> meaning, remedy."""

CODES = {code: row for group in GROUPS.values() for code, row in group.items()}
"""All codes."""
