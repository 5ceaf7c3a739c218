-- verb: rescue
-- from: running
-- to: waiting or canceled
-- what: the lease lapsed, so its worker died; to the front of its list, or it ends as canceled. After too many rescues
--       the rescuer claims it
-- KEYS     the queues: model name and pk
-- request
--   limit          how many jobs at most
--   max_rescues    how often a job is rescued at most
--   token, lease   of the rescuer
--   is_starting    '1' from a worker that just began
--   classes
-- reply
--   done   {rescued, unknown, exhausted, has_to_reconcile, broken, spared, next_lapse, lost, has_flows}
--     rescued     {key of the waiting list, ident, identifier, queue_name, queue_priority, rescues}…
--     unknown     idents of jobs whose class was not given: left where they are; some may be parked
--     exhausted   as a claimed job in claim.lua: a job that was rescued too often, which the caller has to fail; if any
--     has_to_reconcile   one of all workers has to, every five minutes
--     broken      {ident, reason}… of jobs whose hash is not a hash: they are in the quarantine of their queue now
--     spared      how many have half a lease more: a worker that just began may not know that Redis just began, too, so
--                 that no worker could renew a lease
--     has_flows   whether there are flows that run, or of which something is left to do
--     next_lapse  in how many seconds the next lease ends, unless it is renewed; none without any
--     lost        {token, queue_name}… of the claims that lapsed; none without any
--
-- A job that was delayed or put in error before its worker died goes to the waiting list, too: the next worker handles
-- it. A job that runs without a claim got its lease from reconcile. If several jobs were claimed at once, it is not known
-- which of them killed the worker: neither the rescue nor the try counts. One that is lost so twice is a suspect: next time
-- it runs with at most half as many of them, and so on, until it runs without another one. Then it has not the token of one
-- of several, so that its next rescues count; so it is with one that was lost alone. The jobs of a worker that said that it
-- ends are no suspects: it may have been killed because it took too long.

--@include clock
--@include claims
--@include limits
--@include quarantine
--@include signals

local limit, max_rescues, lease = tonumber(request.limit), tonumber(request.max_rescues), tonumber(request.lease)
local token, is_starting, classes = checked_token(request.token), request.is_starting, classes_from(request.classes)
local moment = now()
local rescued, unknown, broken, lost_claims, spared, exhausted = {}, {}, {}, {}, 0

-- The job will run again, unless it was delayed.
local function is_to_run(status)
  return status == STATUSES.RUNNING or status == STATUSES.ERROR
end

local function put_back(queue, job, status, rescues, changes)
  probe('LLEN', queue .. ':waiting')
  changes._queue_key = queue
  if is_to_run(status) then
    changes.status, changes.start, changes['end'] = STATUSES.WAITING, false, false
  end
  end_claim(queue, job, changes)
  if rescues then redis.call('HSET', job.key, '_rescues', rescues) end
  if job.model.limits and is_back_in_lane(queue, job) then return end
  if not redis.call('LPOS', queue .. ':waiting', job.ident) then
    redis.call('LPUSH', queue .. ':waiting', job.ident)
    notify_worker(queue)
  end
end

local function take_over(queue, job)
  update(job.model, job.pk, {status = STATUSES.RUNNING, _claim_token = token})
  redis.call('ZADD', queue .. ':_running', score(moment + lease * 1000000), job.ident)
  local slots = job.model.limits and redis.call('HGET', job.key, '_slots')
  if slots then extend_slots(job.ident, slots, lease) end
  local identifier, start, tries = unpack(redis.call('HMGET', job.key, 'identifier', 'start', 'tries'))
  local name, priority = unpack(redis.call('HMGET', queue .. ':hash', 'name', 'priority'))
  exhausted = delivery({
    outcome = 'claimed', key = queue .. ':waiting', ident = job.ident, token = token, status = STATUSES.RUNNING,
    identifier = identifier or '', queue_name = name or '', queue_priority = priority or '', start = start or '',
    tries = tries or '',
  })
end

-- The second in which Redis was started, if the caller just began, and Redis was started less than a lease ago.
local function recent_start()
  local information = is_starting and redis.pcall('INFO', 'server')
  local seconds = type(information) == 'string' and tonumber(string.match(information, 'uptime_in_seconds:(%d+)'))
  return seconds and seconds < lease and (math.floor(moment / 1000000) - seconds) * 1000000
end

-- How many jobs one look at those that run reads in each queue, at most.
local MAX_LOOK = 1000

-- Calls a function with the token and the `_rescues` of each job that runs.
local function for_each_running(visit)
  for _, queue in ipairs(KEYS) do
    local idents = redis.pcall('ZRANGE', queue .. ':_running', 0, MAX_LOOK - 1)
    for _, ident in ipairs(idents) do
      local path, pk = parse_ident(ident)
      local hash = path and classes[path]
        and redis.pcall('HMGET', hash_key(model_of(classes[path]), pk), '_claim_token', '_rescues')
      local token, rescues = unpack(hash or NOTHING)
      if token then visit(token, rescues) end
    end
  end
end

local lost_by_owner, ended = {}, {}

-- The worker that a token names; without one, the claims that were made at once.
local function owner_of(token)
  return string.match(token, '@([^/]+)') or string.match(token, '^[^/]*')
end

-- How many jobs were lost with the worker of a token that may have killed it: only suspects, for a suspect. Nil if it ran
-- no others. It is asked before any of them is put back.
local function lost_with(token, is_suspect)
  if not token or not is_one_of_several(token) then return nil end
  local owner = owner_of(token)
  if not lost_by_owner[owner] then
    local all, suspects = 0, 0
    for_each_running(function(other, rescues)
      if owner_of(other) == owner then
        all, suspects = all + 1, suspects + (suspects_beside(rescues) and 1 or 0)
      end
    end)
    lost_by_owner[owner] = {all, suspects}
  end
  return lost_by_owner[owner][is_suspect and 2 or 1]
end

-- Whether the worker of a token said that it ends: one of several slots does so, with a key beside the queues.
local function said_to_end(token)
  local owner = string.match(token or '', '^slot:[^@]*@([^/]+)')
  if owner and ended[owner] == nil then
    ended[owner] = redis.call('EXISTS', shared_key(KEYS[1], '_stopping:' .. owner)) == 1
  end
  return owner and ended[owner]
end

local started

local function rescue(queue, ident)
  local path, pk = parse_ident(ident)
  if path and not classes[path] then
    unknown[#unknown + 1] = ident
    return
  end
  local job = path and job_of(classes[path], ident)
  local hash = job and redis.call(
    'HMGET', job.key, '_claim_token', 'status', 'identifier', '_rescues', '_queue_key', 'tries', 'start', '_followed_by')
  local held, status, identifier, rescues, queue_key, tries, start, follower = unpack(hash or NOTHING)
  local is_here = hash and (queue_key or queue) == queue
  if not is_here or not held and status ~= STATUSES.RUNNING then
    redis.call('ZREM', queue .. ':_running', ident)
    return
  end
  if held and (status == STATUSES.CANCELED or follower and has_as_follower(job.model, job.pk, follower)) then
    end_claim(queue, job, follower and left_to_follower(job) or {status = STATUSES.CANCELED, queued = false})
    return
  end
  if started == nil then started = recent_start() or 0 end
  if (parse_date(start) or 0) < started then
    redis.call('ZADD', queue .. ':_running', 'XX', score(moment + lease * 500000), ident)
    spared = spared + 1
    return
  end
  local lost, is_innocent = lost_with(held, suspects_beside(rescues)), said_to_end(held)
  local is_uncounted = (lost or is_innocent) and status == STATUSES.RUNNING
  rescues = is_uncounted and is_innocent and rescues or lost_once_more(rescues, is_uncounted and lost)
  local number = tonumber(rescues) or 0
  local name, priority = unpack(redis.call('HMGET', queue .. ':hash', 'name', 'priority'))
  if is_to_run(status) and not is_uncounted and number > max_rescues then
    take_over(queue, job)
  else
    -- It began, so its `start_within` is over, though the try does not count.
    put_back(queue, job, status, rescues, is_uncounted and {tries = one_try_less(tries), _start_within = false} or {})
    rescued[#rescued + 1] = {
      key = queue .. ':waiting', ident = ident, identifier = identifier or '', queue_name = name or '',
      queue_priority = priority or '', rescues = number,
    }
  end
  if held then lost_claims[#lost_claims + 1] = {held, name or ''} end
end

-- A failure does not stop the others: a queue whose keys are of a wrong type is looked at again in a minute.
local function rescue_failed(queue, ident, reason)
  if is_broken(job_of(classes[parse_ident(ident)], ident).key) then
    set_aside(queue, ident)
    redis.call('ZREM', queue .. ':_running', ident)
    broken[#broken + 1] = {ident, reason}
  else
    redis.call('ZADD', queue .. ':_running', 'XX', score(moment + 60000000), ident)
  end
end

-- Whether the caller has to reconcile, because no worker has done so for five minutes, or for ten seconds if it just began
-- itself.
local function has_to_reconcile()
  local lock = shared_key(KEYS[1], 'reconcile_lock')
  local left = redis.call('PTTL', lock)
  if left < 0 or is_starting and left < 290000 then
    redis.call('SET', lock, '1', 'PX', 300000)
    return true
  end
  return false
end

-- Moves the jobs of unknown classes behind the others for the next look: their leases stay lapsed, but come last.
local function look_at_others_first(queue, first)
  for i = first, #unknown do
    redis.call('ZADD', queue .. ':_running', 'XX', score(moment), unknown[i])
  end
end

for _, queue in ipairs(KEYS) do
  local idents = redis.pcall('ZRANGEBYSCORE', queue .. ':_running', '-inf', score(moment), 'LIMIT', 0, limit)
  local first_unknown = #unknown + 1
  for _, ident in ipairs(idents) do
    if not exhausted then
      local ok, failure = pcall(rescue, queue, ident)
      if not ok then pcall(rescue_failed, queue, ident, text_of_error(failure)) end
    end
  end
  if #idents == limit then look_at_others_first(queue, first_unknown) end
end

-- A worker that knows no class with limits looks into no lanes. So jobs that are parked there tell it of their classes:
-- all workers that knew them may have ended.
local function tell_of_parked()
  for _, queue in ipairs(KEYS) do
    local idents = redis.pcall('ZRANDMEMBER', queue .. ':_parked', 10)
    for _, ident in ipairs(idents.err and NOTHING or idents) do
      local path = parse_ident(ident)
      if path and not classes[path] then unknown[#unknown + 1] = ident end
    end
  end
end

if not knows_limits then tell_of_parked() end

-- In how many seconds the first of the leases ends that still hold.
local function next_lapse()
  local first
  for _, queue in ipairs(KEYS) do
    local running, from = queue .. ':_running', '(' .. score(moment)
    local _, ends = unpack(redis.pcall('ZRANGEBYSCORE', running, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
    ends = tonumber(ends)
    if ends and ends < math.huge and ends < (first or math.huge) then first = ends end
  end
  return first and string.format('%.6f', first - moment / 1000000)
end

return answer('done', {
  rescued = rescued, unknown = unknown, exhausted = exhausted, has_to_reconcile = has_to_reconcile(), broken = broken,
  spared = spared, next_lapse = next_lapse(), lost = #lost_claims > 0 and lost_claims or nil,
  has_flows = redis.call('EXISTS', FLOWS .. ':live', FLOWS .. ':todo', FLOWS .. ':building') > 0,
})
