"""Every bound of the service, in one place. Units are part of the name.

Wire bounds come from machine protocol §1.4, §4.0.6 and §8; the limits of the write and read paths from the design.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# --- wire: envelope -------------------------------------------------------------------------------------------
FRAME_BYTES_MAX = 24 * MIB
REQUEST_ID_BYTES_MAX = 256
IDEMPOTENCY_KEY_BYTES_MAX = 512
CONTEXT_ID_BYTES_MAX = 256
PINS_MAX = 128
PIN_BYTES_MAX = 512

# --- wire: operations -----------------------------------------------------------------------------------------
ID_BYTES_MAX = 256
ARTIFACT_BYTES_MAX = 8 * MIB
ENCODED_CONTENT_BYTES_MAX = 12 * MIB
KIND_BYTES_MAX = 128
OKF_NODE_BYTES_MAX = 2 * 1024 * 1024
"""Of one file of a bundle: larger ones are no notes."""
TITLE_BYTES_MAX = 4096
MEDIA_TYPE_BYTES_MAX = 512
ACTOR_BYTES_MAX = 1024
METADATA_BYTES_MAX = 64 * KIB
REASON_BYTES_MAX = 64 * KIB
STATEMENT_BYTES_MAX = 128 * KIB
EVIDENCE_ITEMS_MAX = 128
QUERY_BYTES_MAX = 8192
QUERY_WORDS_MAX = 48
HISTORY_ITEMS_MAX = 100
HISTORY_ITEMS_DEFAULT = 50
SEARCH_ITEMS_MAX = 100
SEARCH_ITEMS_DEFAULT = 10
METADATA_DEPTH_MAX = 128
"""Nesting of a free-form map: JSON encoders give up at some depth, and an answer wraps the map a few levels deep."""
RECALL_CLAIMS_MAX = 10
RECALL_CLAIMS_DEFAULT = 5
RECALL_SLATE_PER_CLAIM = 4
RECALL_SLATE_MAX = 10
"""Claims among which those shown are chosen."""
RECALL_ARTIFACT_REFS_MAX = 20
RECALL_ARTIFACT_REFS_DEFAULT = 3
CANDIDATES_KEPT_MAX = 16
"""Matches that did not qualify among which those suggested are chosen."""
RECALL_CANDIDATE_CLAIMS_MAX = 5
RECALL_CANDIDATE_ARTIFACT_REFS_MAX = 5
RECALL_EXCERPT_BYTES_MAX = 1024
RECALL_EXCERPT_BYTES_DEFAULT = 320
RECALL_EVIDENCE_EXCERPTS_PER_CLAIM_MAX = 4
PROBE_ITEMS_MAX = 8
PROBE_TITLE_BYTES_MAX = 48
PROBE_ARTIFACT_LEADS_MIN = 2
"""Leads kept free for artifacts, however many claims there are."""
PROBE_SOURCES_PER_LEAD_MAX = 3
PROBE_LEAD_BYTES_MAX = 4 * KIB
RETRIEVE_LEADS_MAX = 8
RETRIEVE_REFERENCES_MAX = 9
RETRIEVE_EVIDENCE_BYTES_MAX = 12 * KIB
RETRIEVE_REFERENCE_BYTES_MAX = 1536
RETRIEVE_VOCABULARY_MAX = 12
"""Words of stored text that are proposed for the next question."""
CONTEXT_BYTES_DEFAULT = 16 * KIB
CONTEXT_TITLE_BYTES_MAX = 256
"""Of the quoted title of one hit."""
CONTEXT_CONFLICTS_SHARE = 4
"""Contradictions take at most this fraction of a context: one claim may be in hundreds of them."""
CONTEXT_EVIDENCE_PER_CLAIM_MAX = 16
"""Evidence that a context cites of one claim, the first; the manifest has all of it."""
DERIVATION_CITATIONS_MAX = 64
"""Citations of this store that are kept of a text that quotes it, the first ones."""
DERIVATION_BATCH_ITEMS_MAX = 1024
"""Citations of a text that are looked up at a time: invented ones before them hide none."""
CITATION_BYTES_MAX = 1024
CITATION_FETCH_BYTES_MIN = 4
"""The longest UTF-8 character: a smaller bound could not be kept."""
CITATION_FETCH_BYTES_MAX = 8192
RELATION_LIST_ITEMS_MAX = 100
CONFLICT_LIST_ITEMS_MAX = 100
CONFLICT_PAGE_BYTES_MAX = 12 * MIB
"""Of the encoded items of one page of conflict cases, each of which may carry four claim statements."""
ERASE_ENTITIES_MAX = 100
"""Artifacts and claims of one erasure."""
SOURCE_ITEMS_MAX = 100
SOURCE_NAME_BYTES_MAX = 4096
SOURCE_LOCATOR_BYTES_MAX = 64 * KIB
EPISODE_SOURCE_BYTES_MAX = 16 * KIB
SNAPSHOT_PAGE_CHARACTERS = MIB
EPISODES_FORGOTTEN_MAX = 10_000
"""At once: one commit holds them all."""
FORGET_PREVIEW_SECONDS_MAX = 600.0
"""A receipt of a dry run confirms a deletion for so long."""
EPISODE_HITS_DEFAULT = 10
EPISODE_HITS_UNSAID = 30
"""What `k: 0` means in MemoryProtocol, whose reference then says nothing to its engine."""
EPISODE_HITS_MAX = 1000
QUEUE_LAG_COMMANDS = 1000
"""Of one tenant, undecided; beyond that its callers are warned."""
SOURCE_CURSOR_BYTES_MAX = 64 * KIB
HEALTH_MESSAGE_BYTES_MAX = 64 * KIB
EXTERNAL_ID_BYTES_MAX = 4096
"""Also of external revisions."""
PROJECTION_ITEMS_MAX = 100
PROJECTION_PAGE_BYTES_MAX = 22 * MIB
"""A list ends early here. It has no cursor and so shows as much as a frame holds: a hundred of the largest records,
unless their text has to be escaped."""
PROJECTION_KEY_BYTES_MAX = 4096
PROJECTION_TEXT_BYTES_MAX = 64 * KIB
PROJECTION_SPANS_MAX = 64
PROJECTION_SPAN_BYTES_MAX = 1024
GENERATOR_TAG_BYTES_MAX = 4096
"""Of each of the three texts that say what generated a projection."""
FEEDBACK_ITEMS_MAX = 100
FEEDBACK_CITATIONS_MAX = 128
FEEDBACK_CITATION_BYTES_MAX = 512
FEEDBACK_NOTE_BYTES_MAX = 64 * KIB
FEEDBACK_PAGE_BYTES_MAX = 8 * MIB
"""A page ends early here: a hundred records of the largest kind would not fit into a frame."""
BROWSE_ITEMS_MAX = 1000
"""Of one page of a list; who asks for more gets this many and a cursor."""
BROWSE_ITEMS_DEFAULT = 100
BROWSE_PAGE_BYTES_MAX = 8 * MIB
"""A page ends early here: a thousand of the largest records would not fit into a frame."""
BULK_STREAMS_MAX = 8
"""Bulk requests that one process serves at a time, of one tenant half as many; more are answered 503."""
BULK_BLANK_BYTES_PER_TOKEN = 64 * KIB
"""So much of blank lines counts as a line: they are skipped fast, but not for nothing."""
BULK_LINES_IN_FLIGHT_MAX = 128
"""Of one bulk request: enough to fill the writer's batches, few enough that others are served in between."""
BULK_BYTES_IN_FLIGHT_MAX = FRAME_BYTES_MAX
BULK_MEMORY_BYTES_MAX = 256 * KIB
BULK_SPOOL_BYTES_MAX = 1024 * MIB
"""Of answers that the client of one bulk request has not read yet, on disk; at this many no more lines are taken."""
BULK_IDLE_SECONDS_MAX = 60.0
"""A bulk request ends when its client neither sends nor reads for this long."""
FEED_WAIT_SECONDS_MAX = 20.0
"""Of one request for changes: gateways give up after 29 s."""
FEED_WAITS_MAX = 128
"""Requests that wait for a change in one process, of one tenant half as many: they take places of those in flight."""
FEED_EVENTS_MAX = 1000
FEED_EVENTS_DEFAULT = 100
FEED_PAGE_BYTES_MAX = 2 * MIB
"""A page ends early here."""
FEED_LOOK_SECONDS = 2.0
"""Who waits for a change looks at head himself when nobody did for so long: where the background seldom does."""
LOCAL_CHANGE_LOOK_SECONDS = 0.05
"""Between looks at a data directory that others may write to, while somebody waits for a change."""
COMPRESSED_BYTES_MIN = KIB
"""Of an answer; smaller ones travel in one packet anyhow."""
COMPRESSED_IN_THREAD_BYTES_MIN = 32 * KIB
"""Of one piece; smaller ones take less than a millisecond."""
UNIX_CONNECTIONS_MAX = 4
HTTP_REQUESTS_IN_FLIGHT_MAX = 512
"""Of one process; more are answered 503 at once instead of being queued. `capabilities` reports it over HTTP."""

# --- storage --------------------------------------------------------------------------------------------------
INLINE_BODY_BYTES_MAX = 16 * KIB
"""Bodies up to this size live in the revision row and need no blob (machine protocol §7)."""
COMMAND_TEXT_BYTES_MAX = 64 * KIB
"""Text up to this size also travels in the command, so that the writer need not fetch the blob (design §5.1)."""
COMMAND_BYTES_MAX = 200 * KIB
"""Larger commands are parked in the object store; the message then carries a claim check (design §5.1)."""
CHUNK_BYTES_TARGET = 2048
CHUNK_BYTES_MAX = 4096
CHUNK_TAIL_BYTES_MIN = 256

# --- streamed content: uploads and downloads ------------------------------------------------------------------
UPLOAD_BYTES_MAX = 5 * 1024 * MIB
"""What every S3 takes in one PUT."""
UPLOAD_DECLARATION_BYTES_MAX = 4 * KIB
UPLOAD_SECONDS = 24 * 3600
"""How long an upload may be sent and named."""
UPLOAD_SWEEP_SECONDS = 3600
UPLOADS_RECEIVED_AT_ONCE_MAX = 16
"""By one api process, where it takes the bytes itself, from one tenant half as many; each holds one part of 6 MiB."""
UPLOADS_VERIFIED_AT_ONCE_MAX = 2
"""By one writer process: each keeps a core busy hashing."""
UPLOADS_IN_HAND_MAX = 256
"""Of one writer process: received, and being verified or waiting for it."""
STREAM_SILENCE_SECONDS_MAX = 60.0
"""A peer that neither sends nor takes any bytes for this long has left."""
STREAM_PIECE_BYTES = 64 * KIB
"""Given to the server at a time, and held by the kernel for a connection at most: what stays here when a reader stops
reading, and how finely a slow one is told from that. The kernel alone would take megabytes."""
DOWNLOADS_AT_ONCE_MAX = 32
"""Of one api process, and half as many of one tenant; each holds two windows."""
SNAPSHOTS_AT_ONCE_MAX = 32
"""Of more than one page, of one api process, and half as many of one tenant."""
DOWNLOAD_WINDOW_BYTES = MIB
VERIFICATION_WINDOW_BYTES = 8 * MIB

# --- write path (design §5) -----------------------------------------------------------------------------------
BATCH_COMMANDS_MAX = 1000
"""A group commit pays two round trips and a fixed share of dirty pages, however many commands it has."""
WRITE_WAIT_SECONDS_DEFAULT = 10.0
WRITE_WAIT_SECONDS_MAX = 25.0
ATTEMPT_BODY_RETENTION_SECONDS = 3600
ATTEMPT_RETENTION_SECONDS = 29 * 24 * 3600
"""The row (attempt, status, code) outlives queue plus dead-letter retention, 14 days each."""
COMMAND_AGE_SECONDS_MAX = 12 * 3600
"""Half the blob grace period: an older command may cite a blob that garbage collection has removed."""
CLOCK_SKEW_SECONDS_MAX = 15 * 60
UPLOAD_REMOVAL_SECONDS = UPLOAD_SECONDS + COMMAND_AGE_SECONDS_MAX + CLOCK_SKEW_SECONDS_MAX
"""Counted from its declaration. By then no command that names it can still be applied."""
POISON_TRIES_MAX = 3
RECEIVE_WAIT_SECONDS = 1.0
VISIBILITY_SECONDS = 15.0
"""At most the lease's lifetime, extended while working, so that a dead writer's messages return in time."""

# --- head and lease (design §5.3) -----------------------------------------------------------------------------
LEASE_TTL_SECONDS = 15.0
LEASE_RENEW_SECONDS = 5.0
HEAD_PUT_TIMEOUT_SECONDS = 3.0
WATCHDOG_SECONDS = 60.0
"""The heartbeat stops renewing when the writer has made no progress for this long."""
SETTLE_AFTER_IDLE_SECONDS = 60.0
TENANTS_HELD_MAX = 32
SYNC_TIMEOUT_SECONDS = 10

# --- read path (design §6) ------------------------------------------------------------------------------------
MIN_COMMIT_SEQ_WAIT_SECONDS = 1.0
STALENESS_SECONDS_MAX = 1.0
HEAD_WAIT_SECONDS_MAX = 20.0
"""A request that must see head, or is the first of its tenant, waits at most this long: gateways give up after 29 s."""
STALE_WAIT_SECONDS_MAX = 1.0
"""One that need not is answered from an older state instead."""
POLL_SECONDS_MIN = 0.004
POLL_SECONDS_MAX = 0.05
IDLE_COPY_WAIT_SECONDS = 0.25
REPLICAS_MAX = 64
REPLICA_BYTES_MAX = 8 * 1024 * MIB
KEPT_CHANGES_BYTES_MAX = 16 * MIB
"""Change files kept, compressed, until both local copies have them; fetched again beyond."""
RESTORE_BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
BLOB_CACHE_BYTES_MAX = 32 * MIB
QUOTA_RATE_MAX = 1_000_000
"""Requests a second, and requests at once, that a tenant may be granted."""

# --- verification and backup (design §8) ------------------------------------------------------------------------
COUNTER_MAX = 2**53 - 1
"""The last integer that every reader of JSON has exactly; no store counts so far."""
HLC_MAX = 2**62
"""The year 4199: a store whose clock stands later was damaged, and leaves its writers nothing to count up to."""
VERIFY_ISSUES_MAX = 200
"""Issues told one by one; the rest are counted."""
VERIFY_TEXTS_COMPARED_MAX = 1024
"""About so many texts of each full-text index are held against what is indexed of them: half a second of work."""
VERIFY_PIECE_BYTES = 4 * MIB
VERIFY_PIECES_AHEAD = 6
"""Pieces of blobs on their way from the store while one is hashed: this much memory, whatever the blobs' sizes."""
BACKUP_PIECE_BYTES = MIB
"""Of a file that is packed, unpacked or read through."""
BACKUP_WINDOW_BYTES = 8 * MIB
"""Of an object that is fetched; two are in memory."""
BACKUP_COPIES_AT_ONCE_MAX = 4
"""Blobs that are copied to a second bucket at a time; each holds two windows and a part."""
BACKUP_SAMPLE_BLOBS_MAX = 8
BACKUP_SAMPLE_BYTES_MAX = 32 * MIB
"""Of blobs that a backup reads and hashes; all of them with `--full`."""
LIST_PAGE_OBJECTS = 1000
LIST_PAGE_SECONDS_MAX = 60.0
BACKUP_INTENT_SECONDS_MAX = 12 * 3600
"""A backup that took longer is given up: what it refers to is no longer protected for certain."""
BACKUP_INTENT_REMOVAL_SECONDS = 24 * 3600
"""What a broken-off backup left is removed after this long, never earlier: it may be another run's."""
BACKUP_USE_SECONDS_MAX = 24 * 3600
"""For this long a backup that is being read cannot be pruned."""
POINT_IN_TIME_SECONDS = 72 * 3600
"""How far back a tenant can be restored to a point in time, unless the deployment says otherwise."""
RESTORE_DIRECTORY_SECONDS_MAX = 12 * 3600.0
"""Of a data directory; one that takes longer is given up, and what it copied goes with the next collection."""
ERASURE_RECORD_BYTES_MAX = 16 * MIB
"""Ids and digests of one erasure, a hundred artifacts of many revisions among them."""
ERASURE_RECORD_BLOBS_MAX = 200_000
"""Digests of one erasure that its entry names; what others are left goes with the collection of garbage."""
DIRECTORY_COLLECTED_EVERY_SECONDS = 24 * 3600.0
"""How often whoever has a data directory is asked to run `memoree gc`."""
COLLECT_BLOBS_MAX = 1000
"""Blobs that are condemned, and then deleted, at a time."""
COLLECT_GRACE_SECONDS_MIN = 2 * COMMAND_AGE_SECONDS_MAX
"""A blob that nothing holds may be on its way into a revision for half as long (design §8)."""
COLLECT_SEND_SECONDS_MAX = 20 * 60
"""After a blob was condemned no DELETE of it is sent any more."""
COLLECT_DELETE_EXPIRES_SECONDS = 600
"""How long a store may take to execute one: by then it refuses it."""
COLLECT_RELEASE_SECONDS_MIN = 2 * 3600
"""A condemned blob may be cited again after this long: every DELETE of it has been executed or refused, also where two
hosts' clocks are as far apart as the store lets them be."""
COLLECT_PAGE_OBJECTS = 10_000
"""Blobs whose names are held against the rows at a time."""
COLLECT_RUN_BLOBS_MAX = 100_000
"""Of one run; the next one takes the rest."""
JOB_REQUESTS_AT_ONCE_MAX = 16
"""Of one job that looks at objects or deletes them."""
REMOVAL_FAILURES_TOLD_MAX = 100
LOCAL_COPY_IDLE_SECONDS_MAX = 3600.0
"""A reader gives up a replica, and a writer the database of a settled tenant, that nobody needed for so long: it would
keep what was erased since."""
ERASED_FROM_COPIES_SECONDS = 60.0
"""So long after a deletion no process that works with the tenant has a local copy of what was deleted, but for a read
that goes on. A copy that nobody uses costs no request, and goes when it is given up."""
JOB_CLAIM_TRIES_MAX = 50
"""A writer at work moves head many times a second, and so now and then in the moment when a job claims the tenant."""
JOB_SNAPSHOT_SECONDS_MAX = 3600.0
"""A job waits for a large tenant to be loaded: it is the first that asks for it in its process, and nobody waits for
it."""
ERASED_IN_BACKUPS_SECONDS = 30 * 24 * 3600.0
"""A backup that holds something erased is pruned so long after the erasure at the latest, unless it is the newest."""
QUEUE_SECONDS_MAX = 2 * 14 * 24 * 3600.0
"""How long a message can be in a queue and then in its dead-letter queue, 14 days each."""
JOB_SECONDS_MAX = 6 * 3600.0
"""Of one run of a scheduled job; one that takes longer is broken off and counts as failed."""
JOBS_DISCOVERY_SECONDS = 3600
"""How long a new tenant may go unnoticed by the schedule."""
JOBS_SPREAD_SECONDS = 600
JOBS_WAIT_SECONDS = 60.0
"""While another process runs the jobs, or the store does not answer."""
JOBS_RETRY_SECONDS_MIN = 300
JOBS_RETRY_SECONDS_MAX = 6 * 3600
"""Pauses after failures in a row: doubled every time, and never longer than the job's period."""
JOBS_IDLE_PERIODS = 7
"""So many periods after its last run a job runs again although nothing happened to the tenant."""
JOBS_OVERDUE_SECONDS = 2 * 3600
"""A job that was due so long ago is told as overdue."""
LEFTOVERS_SECONDS_MIN = 2 * COMMAND_AGE_SECONDS_MAX
"""What was made for a single command, and for one answer, is of no use to anybody after half as long."""
RESTORE_POINTS_LISTED_MAX = 1000
"""Of the states that a tenant can be restored to, the newest are told one by one; of the others, how many there are."""
RESTORE_MISSING_TOLD_MAX = 100
"""Of the blobs that a restored state needs and that are nowhere."""
LONG_READS_AT_ONCE_MAX = 2
"""Of one process, and one of each tenant: reads through the whole store, such as `verify`. More are answered 503."""
LONG_READ_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine, well under a millisecond, after which such a read looks whether anybody still waits."""
PATH_BYTES_MAX = 4096
"""Of a file name in a request: more than any system takes."""

# --- ingestion through a queue (docs/ingest.md) -----------------------------------------------------------------
INGEST_INLINE_BYTES_MAX = 128 * KIB
"""Raw bytes of content in a message; more is sent as an upload first, and named."""
INGEST_MESSAGE_BYTES_MAX = 240 * KIB
"""What is published: so much less than a queue takes that a dead letter can say why it is one."""
INGEST_TRIES_MAX = 5
"""Failures of one message that are neither a refusal nor an outage; then it goes to the dead letters."""
INGEST_MESSAGES_IN_HAND_MAX = 2000
"""Received by one worker and not decided yet."""
INGEST_IN_FLIGHT_MAX = 256
"""Messages of one tenant that a worker submits one by one at a time, beside those that go together."""
INGEST_VISIBILITY_SECONDS = 30.0
"""A worker that died gives its messages back after this long; one that works hides them for longer."""
INGEST_PUBLISHED_AT_ONCE_MAX = 100
INGEST_QUEUE_LAG_WARN = 1000
"""Messages waiting from which on publishers are told, and slow down."""
INGEST_QUEUE_DEPTH_MAX = 20_000
"""Messages waiting from which on publishers wait until there are fewer."""
INGEST_AGE_SECONDS_MAX = 60.0
"""Of the oldest waiting message; an older one says that no worker keeps up, or that none runs."""
SOURCES_REMEMBERED_MAX = 4096

# --- functions (docs/deploy-aws.md) -----------------------------------------------------------------------------
FUNCTION_PAYLOAD_BYTES_MAX = 5_750_000
"""Of a function's answer as the JSON that it travels as. Lambda takes 6 291 556, with headers and all."""
FUNCTION_ANSWER_BYTES_MAX = 4 * MIB
"""Of a body that a function answers by itself; larger ones are left in the store."""
FUNCTION_STORED_ANSWER_BYTES_MAX = 64 * MIB
"""Of one that is left in the store; it is in memory before."""
FUNCTION_ANSWER_SECONDS = 900
"""How long the URL of such an answer lives."""

# --- connectors (docs/connectors.md) ----------------------------------------------------------------------------
CONNECTOR_ITEM_BYTES_MAX = ARTIFACT_BYTES_MAX
"""Of one file or object; larger ones are told and left out."""
CONNECTOR_BATCH_ITEMS_MAX = 100
CONNECTOR_BATCH_BYTES_MAX = 4 * MIB
"""Published and remembered at a time; the next batch is read meanwhile."""
CONNECTOR_DEPTH_MAX = 64
"""Directories in each other, each of which is held open."""
CONNECTOR_SKIPPED_LISTED_MAX = 100
"""Told one by one in a summary; the rest are counted."""
CONNECTOR_REHEARSED_MAX = 1000
"""Messages that a rehearsal prints; the rest are counted."""
CONNECTOR_MESSAGE_CHARS_MAX = 1000
"""Of what a checkpoint says about a source's health."""
CONVERSATION_LINE_BYTES_MAX = 12 * MIB
CONVERSATION_TEXT_BYTES_MAX = 4 * MIB
"""Of one turn; as JSON it is at most six times as long, which few texts are."""
CONVERSATION_SESSION_BYTES_MAX = 512
CONVERSATION_TITLE_CHARS_MAX = 100
"""Of the session's name in the title of an episode."""
CONVERSATION_TURNS_MAX = 200
CONVERSATION_PART_BYTES_MAX = 128 * KIB
CONVERSATION_SPANS_BYTES_MAX = 40 * KIB
"""Turns, text and turns' provenance of one part of a session; a single longer turn is a part of its own."""
