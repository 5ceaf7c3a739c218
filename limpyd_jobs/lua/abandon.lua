-- verb: abandon
-- from: running
-- to: the same
-- what: the worker lets go of a job whose state its own hooks took care of, or that it was given and does not want
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  delay: '+<microseconds>', for a job in hand that waits and stands in none of the next; or ''
-- ARGV[6]  waiting lists: keys, one in a line; or ''
--
-- {'done', '', reindex}
-- {'delayed'}    it has to be put in the delayed set: nothing is changed
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims
--@include lists
--@include places

-- How many idents to look at from each end of a list.
local NEAR = 1000

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]

local refused = refusal(job, token)
if refused then
  if not redis.call('HGET', job.key, '_claim_token') then
    redis.call('ZREM', queue .. ':_running', job.ident)
  end
  return refused
end

-- Whether somebody put the job in the queue of a waiting list, a moment ago.
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
if status == 'w' and is_in_hand(token) and not stands_in_any(lists_from(ARGV[6])(math.huge)) then
  local due = due_at(ARGV[5])
  probe('ZCARD', queue .. ':delayed')
  placed(changes, redis.call('HGET', job.key, 'priority') or '0', due, queue)
  end_claim(queue, job, changes)
  push(queue, job.ident, changes.status, due, true)
  return {'done', '', reindex}
elseif status == 'd' then
  return {'delayed'}
elseif status == 's' or status == 'e' or status == 'c' then
  changes.queued = false
end
end_claim(queue, job, changes)
return {'done', '', reindex}
