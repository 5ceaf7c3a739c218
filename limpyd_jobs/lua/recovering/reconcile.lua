-- verb: reconcile
-- from: waiting, delayed or running
-- to: the same
-- what: a job that is not where its status says, as a worker of version 2 died while it was handed the job, is put there
-- request
--   job_model, idents, queue_model
--   is_home           '1' if jobs of the class that name no queue belong in queues of that model
--   queue_name        of a job that names no queue; or none
--   is_servable       '1' if that queue may be made
--   lease             of a running job that has a claim, but no lease
--   unclaimed_lease   of a running job without a claim, as version 2 runs them: seconds. See lease_without_claim
-- reply
--   done   {repaired, unplaceable}
--     repaired      {ident, status, queue: model name and pk}…
--     unplaceable   idents of jobs whose queue is not known
--
-- Jobs that ended, but still count as queued, no longer do: such as canceled jobs that were lost on their way to the
-- worker that would have skipped them.

--@include claims
--@include home_queues

local queue_model, queue_name = model_of(request.queue_model), request.queue_name
local lease, unclaimed_lease = tonumber(request.lease), tonumber(request.unclaimed_lease)
local repaired, unplaceable = {}, {}

local function make_queue(priority)
  return request.is_servable and queue_model.name .. ':' .. find_or_create_queue(queue_model, queue_name, priority)
end

-- A job that is parked is found there only by workers that know its limits.
local function stands_in(queue, job)
  local ident = job.ident
  return redis.call('LPOS', queue .. ':waiting', ident) or redis.call('ZSCORE', queue .. ':delayed', ident)
    or job.model.limits and redis.call('ZSCORE', queue .. ':_parked', ident)
end

-- Puts a job where it is missing. Returns whether it was missing.
local function repair(job, queue, status, is_queued, claim_token, delayed_until, start)
  if status == STATUSES.RUNNING and not redis.call('ZSCORE', queue .. ':_running', job.ident) then
    local seconds = claim_token and lease or lease_without_claim(start, lease, unclaimed_lease)
    redis.call('ZADD', queue .. ':_running', score(now() + seconds * 1000000), job.ident)
  elseif (status == STATUSES.WAITING or status == STATUSES.DELAYED) and is_queued and not claim_token
      and not stands_in(queue, job) then
    unpark(queue, job.ident)
    push(queue, job.ident, status, {at = parse_date(delayed_until) or now()}, true)
  else
    return false
  end
  redis.call('HSET', job.key, '_queue_key', queue)
  return true
end

-- The identifier of a job that ended is free again.
local function free(job, status, claim_token)
  if (status == STATUSES.SUCCESS or status == STATUSES.ERROR or status == STATUSES.CANCELED) and not claim_token then
    update(job.model, job.pk, {queued = false})
  end
end

local function reconcile(ident)
  local job = job_of(request.job_model, ident)
  local status, queued, named, claim_token, delayed_until, priority, start = unpack(redis.call(
    'HMGET', job.key, 'status', 'queued', '_queue_key', '_claim_token', 'delayed_until', 'priority', 'start'))
  local is_queued = queued == '1'
  local is_live = status == STATUSES.WAITING or status == STATUSES.DELAYED or status == STATUSES.RUNNING
  if is_queued and not is_live then
    return free(job, status, claim_token)
  elseif not is_live or not is_of_model(queue_model, named, request.is_home) then
    return
  end
  local queue = home_of(queue_model, queue_name, named, priority, make_queue)
  if not queue then
    unplaceable[#unplaceable + 1] = ident
  elseif repair(job, queue, status, is_queued, claim_token, delayed_until, start) then
    repaired[#repaired + 1] = {ident, status, queue}
  end
end

for _, ident in ipairs(cjson.decode(request.idents)) do
  -- a broken record does not stop the others
  pcall(reconcile, ident)
end
return answer('done', {repaired = repaired, unplaceable = unplaceable})
