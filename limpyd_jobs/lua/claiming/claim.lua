-- verb: claim
-- from: waiting
-- to: running
-- what: takes the first job of the first list that has one, or the given one, and begins a lease
-- request
--   lists, token, lease, classes   for the token, see `is_only_taken`
--   registry    see add.lua
--   is_concurrent   '1' if the worker runs several jobs at once: the token is that of one of several, unless the job is a
--               suspect, which may kill the worker, and runs without another one (see rescue.lua)
--   suspects, most_suspects   how many suspects that worker runs already, and how many it may run at once; or none
--   ident       none to take a job from the lists; or a job that was taken from the only list by other means
--   is_again    '1' if this is sent once more, as the reply was lost
--   worker      its name, if it is about to wait: it is registered if there is no job, else no longer; or none
--   wait        for how long: seconds
--   schedules   sorted set of the active schedules, by when they are due; or none
--   is_late     '1' if it was sent together with a wait, so that it may be late: it is done only if the worker is
--               registered
--   known       what the worker knows, if it is about to wait, as JSON; or none:
--               {waiting: indexes of the jobs that wait, delayed: of the delayed jobs, one of each for each job class,
--               number: how many were delayed at its last look into all lists, due: when the first of them is due, or
--               none}. Without `number`, all lists are looked into; else only if there may be a new job.
-- reply
--   claimed    {key, ident, token, status before, identifier, queue_name, queue_priority, start, tries, job_timeout, arguments,
--              retry: {policy, uncounted tries, since, and maybe for how long, failing since}, delayed_until, queues,
--              beside: of a suspect, how many suspects may run at once; none if no other one; reason: why it is an error
--              instead of being run, if its limits can never let it begin}; and, if this worker still counts as one that
--              waits, as it is to look at the lanes of that queue the next time, too, {parked: when, moment}
--   found      {key, ident, status, identifier, queue_name, queue_priority, reason}: off the list, but not waiting, so not
--              claimed; the reason if it is canceled now, because it is too late to begin it, or delayed now, with its
--              delayed_until, because it follows another job
--   unknown    {key, ident}: of a class that was not given: still on the list (unless the ident was given)
--   gone       {key, ident}: has no hash: dropped
--   garbage    {key, its first 1,000 bytes}: not an ident: in quarantine now
--   broken     {key, ident, status: the error}: its hash is not a hash: in quarantine now
--   no queue   {key, ident}: the given ident comes from a list of no queue, or of a broken queue: put back
--   paused     {key, ident}: the given ident comes from the list of a paused queue: put back, to the front
--   limited    {key, ident}: a limit keeps the given ident from beginning: it is parked, and waits
--   sorted     {key, ident}: many jobs were parked, or looked at: ask again at once
--   nothing    {broken, queues, moment, overdue, due, missed, scheduled, delayed, is_quiet, parked, is_watched, lanes_of}: the lists that are not
--              lists, of no queue, or beside broken lanes; the last pk of a queue; the moment; when the last of the jobs that are due now
--              became due, and when the next job will be due, if any; the same for schedules; how many jobs are in the
--              given indexes of delayed jobs; whether no list was looked into, as no job came since the last time; when to
--              look again at jobs that are parked, if there are any; whether another worker does so; and the keys of the only
--              queue with such jobs
--   unregistered   nothing was done: the worker asks by itself, or is gone

--@include registry
--@include repeated_claims

refuse_if_moved(request.registry)
local lists, token = lists_from(request.lists), checked_token(request.token)
local lease, ident = tonumber(request.lease), request.ident
local classes, worker, is_again = classes_from(request.classes), request.worker, request.is_again
know_room(request.is_concurrent, request.suspects, request.most_suspects)
local known = request.known and cjson.decode(request.known) or nil
local first_key = lists(1)[1]

local function claim_given()
  local path, base = parse_ident(ident), string.sub(first_key, 1, -9)
  local queue = sound_queue(base)
  if not queue then
    redis.call('LPUSH', first_key, ident)
    return {outcome = 'no queue', key = first_key, ident = ident}
  elseif is_paused(base, queue.name) then
    redis.call('LPUSH', first_key, ident)
    return {outcome = 'paused', key = first_key, ident = ident}
  elseif not path then
    set_aside(base, ident)
    return {outcome = 'garbage', key = first_key, ident = string.sub(ident, 1, 1000)}
  elseif not classes[path] then
    return {outcome = 'unknown', key = first_key, ident = ident}
  end
  local reply = claim_safely(first_key, queue, ident, classes[path], token, lease, false)
  if reply.outcome == 'limited' then
    local _, spot = lane_of(job_of(classes[path], ident), base)
    park_again(first_key, queue, reply, spot, classes)
  end
  return reply
end

-- The lists with entries that cannot be claimed, or beside lanes where none can, except the lists of paused queues.
local function broken_lists()
  local broken, i = {}, next_filled(lists, 1)
  while i do
    local key = lists(i)[i]
    local ident = not empty_lists[key] and first_of(key)
    if beside_broken_lanes[key] or ident and (type(ident) ~= 'string' or not sound_queue(string.sub(key, 1, -9))) then
      broken[#broken + 1] = key
    end
    i = next_filled(lists, i + 1)
  end
  return broken
end

-- The last score of a sorted set up to a moment, or the given one if it is later; and the first score after the moment,
-- or the given one if it is earlier.
local function around(moment, key, last, first)
  local soonest = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if not soonest then return last, first end
  if tonumber(soonest) > tonumber(moment) then
    return last, not (first and tonumber(first) < tonumber(soonest)) and soonest or first
  end
  local past = redis.pcall('ZREVRANGEBYSCORE', key, moment, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local future = redis.pcall('ZRANGEBYSCORE', key, '(' .. moment, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return past and not (last and tonumber(last) > tonumber(past)) and past or last,
    future and not (first and tonumber(first) < tonumber(future)) and future or first
end

-- The delayed sets beside some lists, in the same form.
local function delayed_sets_of(lists)
  local sets = {}
  return function(last)
    local keys = lists(last)
    for i = #sets + 1, #keys do
      sets[i] = string.sub(keys[i], 1, -9) .. ':delayed'
    end
    return sets
  end
end

-- The same for all delayed sets.
local function delays_around(moment)
  local last, first
  local sets = delayed_sets_of(lists)
  local i = next_filled(sets, 1)
  while i do
    last, first = around(moment, sets(i)[i], last, first)
    i = next_filled(sets, i + 1)
  end
  return last, first
end

local function size_of_all(indexes)
  local size = 0
  for _, key in ipairs(indexes) do
    local number = redis.pcall('SCARD', key)
    size = size + (type(number) == 'number' and number or math.huge)
  end
  return size
end

local delayed = known and size_of_all(known.delayed)

-- Whether no job came since the last look into all lists, except jobs that were pushed by hand. The indexes have the
-- jobs that wait or are delayed. There is one for each job class, however many queues there are.
local function is_quiet()
  return known and known.number == delayed and size_of_all(known.waiting) == 0
    and not (known.due and tonumber(known.due) <= now() / 1000000)
end

-- What the worker needs to know to wait.
local function next_wakeups(quiet)
  local moment, broken, overdue, due = score(now()), {}, nil, known and known.due
  if not quiet then
    broken, overdue, due = broken_lists(), delays_around(moment)
  end
  local missed, scheduled, parked, is_watched, lanes_of
  if not quiet and knows_limits then parked, is_watched, lanes_of = next_look_at_lanes(worker) end
  if request.schedules then missed, scheduled = around(moment, request.schedules) end
  return {
    outcome = 'nothing', broken = broken, queues = last_queue(string.sub(first_key, 1, -9)), moment = moment,
    overdue = overdue, due = due, missed = missed, scheduled = scheduled,
    delayed = delayed ~= math.huge and delayed or -1, is_quiet = quiet or false,
    parked = parked, is_watched = is_watched or nil, lanes_of = lanes_of,
  }
end

local function register()
  local key = shared_key(string.sub(first_key, 1, -9), 'idle_workers')
  redis.pcall('ZREMRANGEBYSCORE', key, '-inf', score(now()))
  redis.pcall('ZADD', key, score(now() + (request.wait or 0) * 1000000), worker)
end

-- Ends the registration of the worker; returns whether there was one.
local function unregister()
  return redis.pcall('ZREM', shared_key(string.sub(first_key, 1, -9), 'idle_workers'), worker) == 1
end

local function find()
  local was_registered = worker and unregister()
  if request.is_late and not was_registered then
    return {outcome = 'unregistered'}
  end
  local quiet = not is_again and is_quiet()
  local found = quiet and {outcome = 'nothing'}
    or is_again and claimed_with(lists, token, classes)[1]
    or ident and claim_given()
    or claim_first(lists, token, lease, classes)
  if found.outcome == 'nothing' then
    if worker then register() end
    return next_wakeups(quiet)
  end
  return found
end

write_classes(request.registry)
local found = find()
if found.err then
  return found
elseif not found.key then
  return answer(found.outcome, found)
end
local reply = {delivery = delivery(found)}
if let_out_of and found.outcome == 'claimed' and request.is_late and not is_concurrent and not is_only_taken(token) then
  reply.parked, reply.moment = look_on(worker, request.wait), score(now())
end
return answer(found.outcome, reply)
