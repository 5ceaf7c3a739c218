-- verb: delay
-- from: running
-- to: delayed or waiting
-- what: at the request of its code, or found delayed in a waiting list; may claim the next job
-- request
--   job_model, ident, queue_key, queue_model, queue_name
--   token
--   unclaimed     '1' instead of a token: for a job that is not claimed
--   delay         none or a past one makes the job wait
--   priority      none to keep it
--   cursor, progress
--   uncounted     '1' if the retry policy does not count the try, and the job was not canceled meanwhile
--   counted       '1' instead if it does, although the job did not fail
--   failing       '1' if it is tried again for a limited time, which begins with its first failure
--   asked         the delay that its code asked for, if that is not yet the one it gets
--   lists, next_token, lease, classes, registry   the next claim, if any
-- reply
--   done       {delayed_until, prefetched; slowed: for how many seconds more than its code asked for, see slowing.lua}
--   canceled   by its status: nothing is changed
--   refused    another owner holds the claim: nothing is changed
--   gone

--@include ending
--@include cursors
--@include places
--@include slowing

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token, request.unclaimed)
local due = due_at(request.delay)

local refused = refusal(job, token)
if refused then
  local given = STATUSES.WAITING .. STATUSES.DELAYED  -- the status that the job gets here is one of these
  return ended_before(job, token, 'done', given) or answer(refused)
end

if has_follower(job) then
  end_claim(queue, job, keep_cursor(left_to_follower(job)), token)
  return ended('done')
end

local own_priority, uncounted_tries, quick_returns, failing_since = unpack(redis.call(
  'HMGET', job.key, 'priority', '_uncounted_tries', '_quick_returns', '_failing_since'))
local changes = {}
local asked = request.asked and due_at(request.asked) or not request.asked and due
local slowed = token and slow_down(changes, quick_returns, asked)
if slowed and not request.asked then due = slowed end
if (request.uncounted or request.counted) and claim_of(job).status == STATUSES.CANCELED then
  return answer('canceled')
end
if request.failing and not failing_since then changes._failing_since = now_text() end
if request.uncounted then
  changes._uncounted_tries = string.format('%d', (tonumber(uncounted_tries) or 0) + 1)
end
local priority = request.priority or own_priority or '0'
local base = prepare_place(model_of(request.queue_model), request.queue_name, priority, due)
placed(changes, priority, due, base)
if job.model.limits then set_place(changes) end
end_claim(queue, job, keep_cursor(changes), token)
push(base, job.ident, changes.status, due, false)
return ended('done', nil, changes.delayed_until or nil, slowed and slowed.seconds)
