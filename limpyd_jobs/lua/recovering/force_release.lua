-- verb: force release
-- from: running
-- to: waiting or canceled
-- what: as release, in place of its worker, whose claim is fenced: to the front of its list, the try not counted; it ends
--       if it was canceled, or another one follows it
-- request
--   job_model, ident, queue_key
--   token       of the claim that the caller saw
--   unclaimed   '1' instead of a token: the caller saw a job that is not claimed
--   audit, unaudited
-- reply
--   done
--   refused       the claim is another one by now: nothing is changed
--   gone
--   not running   nothing is changed
--   no queue      what the job names as its queue is none: nothing is changed

--@include claims
--@include limits
--@include places
--@include audit

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token, request.unclaimed)

local refused = refusal(job, token)
if refused then return answer(refused) end

local status, tries, priority = unpack(redis.call('HMGET', job.key, 'status', 'tries', 'priority'))
local is_unbegun = is_only_taken(token) and status == STATUSES.WAITING
local is_followed, is_canceled = has_follower(job), token and status == STATUSES.CANCELED
if status ~= STATUSES.RUNNING and not (is_unbegun or is_canceled) then return answer('not running') end

local queue_name, queue_priority = unpack(redis.pcall('HMGET', queue .. ':hash', 'name', 'priority'))  -- none of an error
if not (queue_name and queue_priority) then return answer('no queue') end

probe('LLEN', queue .. ':waiting')
probe('ZCARD', queue .. ':_running')
local changes = (is_unbegun or is_canceled) and {} or {start = false, tries = one_try_less(tries), _start_within = false}
if is_followed then
  changes = left_to_follower(job)
elseif is_canceled then
  changes.queued = false
else
  placed(changes, priority or '0', nil, queue)
end
probe_indexes(job.model, job.pk, changes)
write_entry(request.audit)
end_claim(queue, job, changes)  -- without the token: whatever its worker reports is refused
if not (is_canceled or is_followed) and not (job.model.limits and is_back_in_lane(queue, job)) then
  push(queue, job.ident, changes.status, nil, true)
end
return answer('done')
