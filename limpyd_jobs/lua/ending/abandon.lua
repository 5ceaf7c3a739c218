-- verb: abandon
-- from: running
-- to: the same
-- what: the worker lets go of a job whose state its own hooks took care of, or that it was given and does not want
-- request
--   job_model, ident, token, queue_key
--   delay     for a job that is taken, waits and stands in none of the lists
--   cursor, progress
--   lists     the lists where it may stand
-- reply
--   done
--   delayed   it has to be put in the delayed set: nothing is changed
--   refused   another owner holds the claim: nothing is changed
--   gone

--@include claims
--@include cursors
--@include lists
--@include places

-- How many idents to look at from each end of a list.
local NEAR = 1000

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token)

local refused = refusal(job, token)
if refused then
  if not redis.call('HGET', job.key, '_claim_token') then
    redis.call('ZREM', queue .. ':_running', job.ident)
  end
  return answer(refused)
end

-- Whether another process has just put the job in the queue of a waiting list.
local function stands_in(key)
  for _, rank in ipairs({1, -1}) do
    if type(redis.pcall('LPOS', key, job.ident, 'RANK', rank, 'MAXLEN', NEAR)) == 'number' then return true end
  end
  return type(redis.pcall('ZSCORE', string.sub(key, 1, -9) .. ':delayed', job.ident)) == 'string'
end

local function stands_in_any(lists)
  for _, key in ipairs(lists) do
    if stands_in(key) then return true end
  end
end

local changes = {}
local status = redis.call('HGET', job.key, 'status')
if has_follower(job) and (status == STATUSES.WAITING or status == STATUSES.DELAYED or status == STATUSES.RUNNING) then
  changes = left_to_follower(job)
elseif status == STATUSES.WAITING and is_only_taken(token) and not stands_in_any(lists_from(request.lists)(math.huge)) then
  local due = due_at(request.delay)
  probe('ZCARD', queue .. ':delayed')
  placed(changes, redis.call('HGET', job.key, 'priority') or '0', due, queue)
  end_claim(queue, job, keep_cursor(changes))
  push(queue, job.ident, changes.status, due, true)
  return answer('done')
elseif status == STATUSES.DELAYED then
  return answer('delayed')
elseif status == STATUSES.SUCCESS or status == STATUSES.ERROR or status == STATUSES.CANCELED then
  changes.queued = false
end
if status == STATUSES.SUCCESS then changes._cursor = false else keep_cursor(changes) end
end_claim(queue, job, changes)
return answer('done')
