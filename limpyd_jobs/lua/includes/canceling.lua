-- Canceling: a job must not run, or not again.

--@include idents
--@include places

-- Whether a job is run: workers of version 2 do so without a claim.
local function has_holder(job)
  local status, token = unpack(redis.call('HMGET', job.key, 'status', '_claim_token'))
  return status == STATUSES.RUNNING or token and true
end

-- How many cancels are kept for a worker at most, and for how many milliseconds: it may be gone.
local MAX_CANCELS, CANCELS_EXPIRE = 10000, 30000

-- Tells the worker of a running job at once that it is canceled, if its token says that the worker listens. Each worker
-- has a list beside the queues. The token keeps a late message from a later run. The renewal of the lease tells the same,
-- so a message may be lost.
--@rarely
local function tell_worker(job, token, base)
  local owner = string.match(token, '^slot:[^@]*@([^/]+)')
  if not owner or not base or not string.find(base, ':', 1, true) then return end
  local key = shared_key(base, '_canceled:' .. owner)
  local number = redis.pcall('RPUSH', key, job.ident .. ' ' .. token)
  if type(number) ~= 'number' then return end
  if number > MAX_CANCELS then redis.pcall('LTRIM', key, -MAX_CANCELS, -1) end
  redis.pcall('PEXPIRE', key, CANCELS_EXPIRE)
end

-- Asks whoever runs a job to stop, and cancels what it spawned, given its `_spawned`. One that is held in error by its worker may still run again. A failure sets another status,
-- and version 2, with all that was written for it, then puts the job back: the field prevents that.
--@rarely
local function cancel_running(job, token, queue_key, spawned, reason)
  update(job.model, job.pk, {status = STATUSES.CANCELED, cancel_on_error = '1', _cancel_reason = reason})
  if token then tell_worker(job, token, queue_key) end
  if spawned then cancel_spawned(spawned, nil, true) end
end

-- `where` is {model: that of the queue, name: where a job that does not say so itself most likely stands, unplace: what to
-- call instead of that, if given, reason: why, if it is to be kept}. The outcomes are documented in cancel.lua.
local function cancel_job(job, where)
  if redis.call('EXISTS', job.key) == 0 then
    return 'gone'
  end

  local status, token, queued, queue_key, spawned = unpack(redis.call(
    'HMGET', job.key, 'status', '_claim_token', 'queued', '_queue_key', '_spawned'))

  if token or status == STATUSES.RUNNING then  -- workers of version 2 run jobs without a claim
    cancel_running(job, token, queue_key, spawned, where.reason)
    return 'done'
  elseif status == STATUSES.SUCCESS or status == STATUSES.ERROR then
    return 'ended'
  end

  -- The hash first: an ident that may be left in a queue is only a hint, which workers drop.
  update(job.model, job.pk, {
    status = STATUSES.CANCELED, queued = false, _rescues = false, _cancel_reason = where.reason,
  })
  if queued == '1' then
    (where.unplace or unplace)(where.model, where.name or '', job)
  end
  if spawned then cancel_spawned(spawned, nil, true) end
  return 'done'
end
