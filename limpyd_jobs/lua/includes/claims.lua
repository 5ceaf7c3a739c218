-- Claims: who may run a job, and for how long.

--@include following
--@include idents

-- The fields of a job that matter when a claim ends, as they were at the first call.
local function claim_of(job)
  if not job.known then
    local status, token, queued, queue_key, rescues, last_claim, follower, unique_for, slots, flow, emitted = unpack(redis.call(
      'HMGET', job.key, 'status', '_claim_token', 'queued', '_queue_key', '_rescues', '_last_claim', '_followed_by',
      '_unique_for', '_slots', '_flow', '_emitted'))
    job.known = {
      status = status, _claim_token = token, queued = queued, _queue_key = queue_key, _rescues = rescues,
      _last_claim = last_claim, _followed_by = follower, _unique_for = unique_for, _slots = slots,
      _flow = flow, _emitted = emitted,
    }
  end
  return job.known
end

-- Whether the token is of a worker whose application may still put the job elsewhere, before it runs. Then the job is
-- in no list, and has a lease, but otherwise is as it was while it waited.
local function is_only_taken(token)
  return token and string.sub(token, 1, 5) == 'hand:'
end

-- An entry of a waiting list, as documented in claim.lua, in the form that callers read: without names, which take
-- twice as long. The order is as of the attributes of `Delivery`.
local function delivery(found)
  if found.reason then found.retry, found.arguments = {'', '', ''}, {} end
  if found.flow then found.beside = found.beside or 0 end
  if found.beside then found.cursor = found.cursor or '' end
  if found.reason or found.cursor then
    found.arguments, found.delayed_until, found.reason = found.arguments or {}, found.delayed_until or '', found.reason or ''
  end
  return {
    found.outcome, found.key, found.ident, found.status or '', found.identifier or '', found.queue_name or '',
    found.queue_priority or '', found.start or '', found.tries or '', found.job_timeout or '', found.queues or '',
    found.token or '', found.rescues or 0, found.retry, found.arguments or found.delayed_until and {} or nil,
    found.delayed_until, found.reason, found.cursor, found.beside, found.flow,
  }
end

-- The token of one of several claims that a worker makes at once.
local function one_of_several(token, number)
  return string.format('%s/%d', token, number)
end

--@rarely
local function is_one_of_several(token)
  return string.find(token, '/', 1, true) ~= nil
end

-- What `_rescues` says of a job that was lost once, with others: it is most likely not what killed its worker.
local LOST_ONCE_WITH_OTHERS = 'once with others'

-- Whether a job may be what kills its workers, given its `_rescues`: it was lost with others twice, or alone. Then the
-- number of such suspects, itself included, that a worker may run at once; nil for other jobs. That is one, and `_rescues`
-- is a number, which counts, if it can only have been this job, or a few of them.
--@rarely
local function suspects_beside(rescues)
  if not rescues or rescues == LOST_ONCE_WITH_OTHERS then return nil end
  return tonumber(rescues) and 1 or tonumber(string.match(rescues, '^among (%d+)$'))
end

-- The `_rescues` of a job that was lost once more: alone, which counts; or with others, given how many may have killed the
-- worker. Next time, at most half as many run at once: so the one that did it is found in few rounds.
local function lost_once_more(rescues, lost_together)
  if not lost_together then
    return string.format('%d', (tonumber(rescues) or 0) + 1)
  end
  local beside = suspects_beside(rescues)
  if not beside and rescues ~= LOST_ONCE_WITH_OTHERS then return LOST_ONCE_WITH_OTHERS end
  local half = math.floor(math.min(beside or lost_together, lost_together) / 2)
  return half > 1 and string.format('among %d', half) or tonumber(rescues) and rescues or '0'
end

-- Why a caller may not end the claim on a job: it does not hold the claim, or the job was deleted; nil if it may. The
-- token comes from `checked_token`.
local function refusal(job, token)
  local held = claim_of(job)._claim_token
  if not held and redis.call('EXISTS', job.key) == 0 then
    return 'gone'
  elseif held ~= token then
    return 'refused'
  end
end

-- Extends the lease of a claim, and what the job holds of its limits; returns false if it has lost that.
local function extend_claim(base, job, lease)
  local slots = job.model.limits and claim_of(job)._slots
  if slots and not extend_slots(job.ident, slots, lease) then return false end
  -- A full Redis refuses ZADD, unless the script has written before: the job must not be taken for lost.
  if redis.call('ZREM', base .. ':_running', job.ident) == 1 then
    redis.call('ZADD', base .. ':_running', score(now() + lease * 1000000), job.ident)
  end
  return true
end

-- Takes a job out of the running jobs of its queue, whose type was probed, so that its lease ends.
local function leave_running(base, job)
  local stored = claim_of(job)._queue_key
  send('ZREM', base .. ':_running', job.ident)
  if stored and stored ~= base then
    redis.pcall('ZREM', stored .. ':_running', job.ident)
  end
end

-- Whether another job follows a claimed one, so that it does not go back to a queue.
local function has_follower(job)
  local follower = claim_of(job)._followed_by
  return follower and has_as_follower(job.model, job.pk, follower)
end

-- What becomes of it in place of that.
--@rarely
local function left_to_follower(job)
  local is_canceled = claim_of(job).status == STATUSES.CANCELED
  return {
    status = STATUSES.CANCELED, queued = false,
    _cancel_reason = not is_canceled and 'job ' .. claim_of(job)._followed_by .. ', added while it ran, begins instead' or nil,
  }
end

-- Changes a job so that it is not claimed any more. The token of the caller, if given, is kept, so that the
-- caller gets the same reply if it asks again.
local function end_claim(base, job, changes, token)
  probe('ZCARD', base .. ':_running')
  changes._claim_token = false
  changes._rescues = false
  changes._last_claim = token or false
  local follower = claim_of(job)._followed_by
  if follower then changes._followed_by = false end
  update(job.model, job.pk, changes, claim_of(job))
  leave_running(base, job)
  if follower then pcall(unfollow, job.model, job.pk, follower) end
end

-- Whether the caller ended the claim, and asks again, as the first reply was lost.
local function was_ended_with(job, token)
  local last_claim = claim_of(job)._last_claim
  if not token or last_claim then return token and last_claim == token end
  return waits_since_claim(job.key, token)
end

-- Keeps how far a job is while its claim goes on. Once it moves, its rescues count anew. A job that is held in error, or
-- that its hook made a success, has ended: what is to be kept of it was kept with its end, or forgotten.
local function keep_progress(job, cursor, progress)
  local status = claim_of(job).status
  if status ~= STATUSES.ERROR and status ~= STATUSES.SUCCESS then
    update(job.model, job.pk, {_cursor = cursor, _progress_state = progress, _rescues = false}, claim_of(job))
  end
end

-- The lease of a job that runs without a claim, given the seconds for a job with a claim, and the seconds for a worker
-- of version 2. Such a worker sets the start with the status. Without a start, another program set the status, maybe to
-- run the job: the lease is ten times as long.
local function lease_without_claim(start, lease, unclaimed_lease)
  return start and unclaimed_lease or 10 * lease
end

-- The tries of a job if the last one does not count.
local function one_try_less(tries)
  local left = (tonumber(tries) or 0) - 1
  return left > 0 and string.format('%d', left)
end
