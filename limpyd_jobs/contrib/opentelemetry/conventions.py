"""The names in our spans. They stay as they are, whatever the packages of OpenTelemetry call them later.

They are those of the semantic conventions for messaging, version 1.44.0, whose status is "development". Names that
begin with ``messaging.limpyd_jobs.`` are ours: the conventions ask for such a prefix.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
BATCH_SIZE = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

EXCEPTION = "exception"  # an event of a span
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

# Values
LIMPYD_JOBS = "limpyd_jobs"
ADD, SEND = "add", "send"  # the name of the operation, its type
RUN, PROCESS = "run", "process"

JOB_CLASS = "messaging.limpyd_jobs.job.class"
ATTEMPT = "messaging.limpyd_jobs.job.attempt"
SCHEDULE = "messaging.limpyd_jobs.schedule"
OUTCOME = "messaging.limpyd_jobs.outcome"
