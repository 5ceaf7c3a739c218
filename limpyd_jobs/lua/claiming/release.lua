-- verb: release
-- from: running
-- to: waiting or delayed
-- what: given back unharmed, the try not counted: to the front of its list, or its end, or for later; to its place in a lane
-- request
--   job_model, ident, token, queue_key, delay
--   begun          '1' if its code was begun, so that its `start_within` is over
--   goes_last      '1' to put it at the end of its list
--   cursor, progress
--   waits          what the job waits for: 'signal' and its name, or 'children' and the id of their flow. It is delayed until
--                  that is there, unless it is already; see ask_signal.lua
--   heeds_status   '1' if the caller itself handles a job that was canceled or delayed meanwhile; else it is put in the
--                  waiting list, and the next worker handles it
-- reply
--   done      {status}: of the job now
--   canceled, delayed   with `heeds_status`, if the job was given this status meanwhile: nothing is changed
--   refused   another owner holds the claim: nothing is changed
--   gone

--@include claims
--@include cursors
--@include limits
--@include places
--@include signaling

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token)
local due = due_at(request.delay)

local refused = refusal(job, token)
if refused then
  return answer(was_ended_with(job, token) and 'done' or refused, {status = claim_of(job).status or nil})
end

local status, tries, priority = unpack(redis.call('HMGET', job.key, 'status', 'tries', 'priority'))
local is_unbegun = is_only_taken(token) and status == STATUSES.WAITING
if request.heeds_status and status == STATUSES.CANCELED then
  return answer('canceled')
elseif request.heeds_status and status == STATUSES.DELAYED then
  return answer('delayed')
elseif has_follower(job) then
  end_claim(queue, job, keep_cursor(left_to_follower(job)), token)
  return answer('done', {status = STATUSES.CANCELED})
elseif status ~= STATUSES.RUNNING and not is_unbegun then
  probe('LLEN', queue .. ':waiting')
  end_claim(queue, job, keep_cursor({queued = status ~= STATUSES.CANCELED and '1'}), token)
  redis.call('RPUSH', queue .. ':waiting', job.ident)
  notify_worker(queue)
  return answer('done', {status = status or nil})
end

probe('LLEN', queue .. ':waiting')
probe('ZCARD', queue .. ':delayed')
local changes = is_unbegun and {} or {start = false, tries = one_try_less(tries)}
if request.waits then due = due_of_wait(job, request.waits, changes, token) end
if request.begun then changes._start_within = false end
placed(changes, priority or '0', due, queue)
if job.model.limits and request.goes_last then set_place(changes) end
-- What a job waits for tells by which claim, and the job may wait for years: it needs no token beside that.
local is_waiting = request.waits and changes.status == STATUSES.DELAYED
end_claim(queue, job, keep_cursor(changes), (not is_waiting or job.model.history) and token)
if not (job.model.limits and is_back_in_lane(queue, job)) then
  push(queue, job.ident, changes.status, due, not request.goes_last)
end
if is_waiting and claim_of(job)._flow then
  note_waiter(claim_of(job)._flow, request.waits)
end
return answer('done', {status = changes.status})
