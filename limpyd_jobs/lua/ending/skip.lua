-- verb: skip
-- from: success, error, canceled or running
-- to: the same
-- what: a finished job that was found in a waiting list is no longer queued; one that runs without a claim gets a lease
-- request
--   job_model, ident, queue_key
--   lease             of a running job with a claim
--   unclaimed_lease   of a running job without a claim, as version 2 runs them: seconds. See lease_without_claim
-- reply
--   done
--   refused   the job is not finished, or its end is being recorded: nothing is changed, but for a lease
--   gone

--@include clock
--@include claims

local job, queue = job_of(request.job_model, request.ident), request.queue_key

-- The status of a job that waited was set by hand, or a worker of version 2 runs it, and it was added again: until its
-- lease ends, no other worker runs it.
local function give_lease()
  local token, queue_key, start = unpack(redis.call('HMGET', job.key, '_claim_token', '_queue_key', 'start'))
  local has_one = redis.call('ZSCORE', (queue_key or queue) .. ':_running', job.ident)
  if not (token or has_one) then
    local seconds = lease_without_claim(start, tonumber(request.lease), tonumber(request.unclaimed_lease))
    redis.call('ZADD', queue .. ':_running', score(now() + seconds * 1000000), job.ident)
    redis.call('HSET', job.key, '_queue_key', queue)
  end
end

local status = redis.call('HGET', job.key, 'status')
if status == STATUSES.RUNNING then
  give_lease()
end
if status == STATUSES.WAITING or status == STATUSES.DELAYED or status == STATUSES.RUNNING then
  return answer('refused')
end
local refused = refusal(job, false)
if refused then
  return answer(refused)
end
update(job.model, job.pk, {queued = false, _followed_by = claim_of(job)._followed_by and false or nil})
if claim_of(job)._followed_by then pcall(unfollow, job.model, job.pk, claim_of(job)._followed_by) end
return answer('done')
