"""BullMQ for Node. What it does is in bullmq_node.cjs."""

from __future__ import annotations

TITLE = "BullMQ for Node"
NODE_REQUIREMENTS = ["bullmq@6.7.0", "ioredis@6.0.0"]
PACKAGE = "bullmq"
ADDING = "`await add`; many: `addBulk`, 1,000 at a time"
WORKERS = {
    "1 at once": "defaults: a lock per job, finished jobs are kept",
    "50 at once": "`concurrency: 50`; the rest as above",
}
