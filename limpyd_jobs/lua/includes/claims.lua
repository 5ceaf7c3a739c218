-- Claims: who may run a job, and for how long.

--@include idents

local CLAIM_FIELDS = {'status', '_claim_token', 'queued', '_queue_key', '_rescues', '_last_claim'}

-- What a job says of itself that matters when a claim ends, as it was when this was called first.
local function claim_of(job)
  if not job.known then
    job.known = {}
    for i, value in ipairs(redis.call('HMGET', job.key, unpack(CLAIM_FIELDS))) do
      job.known[CLAIM_FIELDS[i]] = value
    end
  end
  return job.known
end

-- Whether the token is that of a worker whose application may still put the job elsewhere, before it runs: then the job
-- is in no list, and has a lease, but otherwise is as it was while it waited.
local function is_in_hand(token)
  return token and string.sub(token, 1, 5) == 'hand:'
end

-- What came out of a waiting list, as claim.lua documents it, as callers read it: without names, which take twice as
-- long. The order is that of the attributes of `Delivery`.
local function delivery(found)
  return {
    found.outcome, found.key, found.ident, found.status or '', found.identifier or '', found.queue_name or '',
    found.queue_priority or '', found.start or '', found.tries or '', found.job_timeout or '', found.queues or '',
    found.token or '', found.rescues or 0, found.retry, found.arguments or found.delayed_until and {} or nil,
    found.delayed_until,
  }
end

-- The token of one of several claims that a worker makes at once.
local function one_of_several(token, number)
  return token .. '/' .. number
end

local function is_one_of_several(token)
  return string.find(token, '/', 1, true) ~= nil
end

-- Why a caller may not end the claim on a job: it does not hold it, or the job was deleted; nil if it may. No token stands for a job that nobody claimed.
local function refusal(job, token)
  local held = claim_of(job)._claim_token
  if not held and redis.call('EXISTS', job.key) == 0 then
    return 'gone'
  elseif held ~= (token or false) then
    return 'refused'
  end
end

-- Takes a job out of the running jobs of its queue, whose type was probed: its lease ends.
local function leave_running(base, job)
  local stored = claim_of(job)._queue_key
  send('ZREM', base .. ':_running', job.ident)
  if stored and stored ~= base then
    redis.pcall('ZREM', stored .. ':_running', job.ident)
  end
end

-- Changes a job so that nobody has a claim on it any more. With the token of the caller, it is kept, for the caller to
-- be told the same if it asks again.
local function end_claim(base, job, changes, token)
  probe('ZCARD', base .. ':_running')
  changes._claim_token = false
  changes._rescues = false
  changes._last_claim = token or false
  update(job.model, job.pk, changes, claim_of(job))
  leave_running(base, job)
end

-- Whether it was the caller who ended the claim, and asks again, as the first reply was lost.
local function was_ended_with(job, token)
  return token and claim_of(job)._last_claim == token
end

-- The lease of a job that is running without a claim, given the seconds of one with a claim, and those to leave to a
-- worker of version 2. That sets the start with the status: without one, somebody else set the status, maybe to run the
-- job himself, who is left ten leases.
local function lease_without_claim(start, lease, unclaimed_lease)
  return start and unclaimed_lease or 10 * lease
end

-- The tries of a job once the last one does not count.
local function one_try_less(tries)
  local left = (tonumber(tries) or 0) - 1
  return left > 0 and string.format('%d', left)
end
