-- Lanes: claims the next job that was parked, and parks the jobs of a waiting list that a limit keeps from beginning.

--@include claim_next
--@include superseding

-- How many entries of a list to look at in one step, how many of those that are behind one which is parked, and how many
-- lanes to try: all other clients wait meanwhile.
local MOST_SORTED, RUN, MOST_TRIED = 500, 100, 100

-- How many lanes to read at once behind one that has no job any more: such ones come one after the other.
local SOME_TURNS = 8

-- A clock that was put back by more than this, in seconds, was not only made exact.
local CLOCK_MARGIN = 0.5

local sorted, tried = 0, 0

-- The queue whose lane was let go by its time, and of which a job was claimed; and when to look at its lanes again.
local let_out_of, looks_next_at

-- Notes that a queue has lanes, of which some may take turns.
--@rarely
local function note_lanes(base, queue, is_fair)
  local kind = (is_fair or queue.lanes == 'fair') and 'fair' or '1'
  if queue.lanes ~= kind then
    redis.call('HSET', base .. ':hash', '_lanes', kind)
    queue.lanes = kind
  end
end

-- Parks some jobs, given places and idents, and by lane places and entries. A lane that was nowhere may be tried; so is one
-- where jobs that may not begin do not just wait.
--@rarely
local function park_all(base, parked, lanes)
  local names, rows, turn = {}, {'ZADD', base .. ':_turns', 'NX'}, nil
  for lane, entries in pairs(lanes) do
    redis.call('ZADD', lane_key(base, lane), unpack(entries))
    if entries.acts then redis.call('ZREM', base .. ':_later', lane) end
    names[#names + 1] = lane
  end
  redis.call('ZADD', base .. ':_parked', unpack(parked))
  local away = redis.call('ZMSCORE', base .. ':_later', unpack(names))
  for i, lane in ipairs(names) do
    if not away[i] then
      turn = turn or last_turn(base)
      rows[#rows + 1], rows[#rows + 2] = turn, lane
    end
  end
  if #rows > 3 then redis.call(unpack(rows)) end
end

-- Parks the jobs at the beginning of a list: those of a lane, or, without one, all that wait. Returns whether it stopped at
-- an entry that is no job to be parked.
--@rarely
local function park_first(key, queue, classes, wanted)
  end_batch()
  local base, parked, lanes, is_fair = string.sub(key, 1, -9), {}, {}, not wanted
  local found = redis.call('LRANGE', key, 0, RUN - 1)
  for _, ident in ipairs(found) do
    local path = parse_ident(ident)
    local job = path and classes[path] and job_of(classes[path], ident)
    local lane, spot = nil, nil
    if job then lane, spot = lane_of(job, base) end
    if not lane or wanted and lane ~= wanted then break end
    forget_deferrals(base, ident)
    local entries, own_ident = lanes[lane] or {}, job.model.path .. ':' .. job.pk
    entries[#entries + 1], entries[#entries + 2] = spot, entry_in_lane(own_ident)
    entries.acts = job.model.limits and job.model.limits.acts
    parked[#parked + 1], parked[#parked + 2] = spot, own_ident
    lanes[lane] = entries
  end
  local number = #parked / 2
  if number > 0 then
    note_lanes(base, queue, is_fair)
    park_all(base, parked, lanes)
    redis.call('LPOP', key, number)
    sorted = sorted + number
  end
  return number < #found
end

-- Puts a job in its lane that a limit keeps from beginning, and lets the lane wait for that.
--@rarely
local function park_again(key, queue, reply, spot, classes, turn)
  local base = string.sub(key, 1, -9)
  queue.looks_at = nil
  if reply.limit and reply.lane == queue.late_lane then queue.late_lane = nil end
  note_lanes(base, queue, false)
  park(base, reply.lane, reply.ident, spot)
  if reply.limit then
    block_lane(base, reply.lane, turn or last_turn(base), reply.limit, reply.moment)
    supersede(base, reply.lane, reply.need, classes)
  else
    know_lane(base, reply.lane)
  end
end

-- The limits of a lane that others may use, but for the one that it waits for.
--@rarely
local function pass_on(lane, limit)
  for _, each in ipairs(limits_in(lane)) do
    if each ~= limit then let_lanes_go(each) end
  end
end

-- A lane without jobs waits for nothing: not for a limit that let it go by its rate, either.
--@rarely
local function wait_no_more(base, lane)
  for _, limit in ipairs(limits_in(lane)) do
    local blocked = base .. ':_blocked\n' .. limit
    if redis.call('ZREM', blocked, lane) == 1 and redis.call('EXISTS', blocked) == 0 then
      redis.call('SREM', limit .. ':queues', base)
    end
  end
end

-- Lets a lane wait for its rate again that was not let go, as it was the only one: so it still waits for that limit.
--@rarely
local function wait_again(base, queue, lane, next_turn, limit, moment)
  if redis.call('EXISTS', lane_key(base, lane)) == 0 then
    redis.call('ZREM', base .. ':_later', lane)
    wait_no_more(base, lane)
    return
  end
  redis.call('ZADD', base .. ':_later', score(moment), lane)
  if queue.lanes == 'fair' then redis.call('ZADD', base .. ':_blocked\n' .. limit, next_turn, lane) end
  local second = tonumber(queue.looks_second_at)
  let_out_of = base
  looks_next_at = second and second < moment / 1000000 and queue.looks_second_at or score(moment)
end

-- Lets the next lane have its turn, once a job of a lane was claimed. If a limit is reached by that, the lane waits; where
-- jobs that may not begin do not just wait, it does so once it was tried.
--@rarely
local function end_turn(base, queue, lane, turn, needs)
  local share, fair, full, moment, is_acting = 1, nil, nil, nil, false
  for _, need in ipairs(needs) do
    if need.rule.fair then share, fair = set_value(need, 'share') or 1, need.limit end
    local is_rate_used = need.interval and need.used_until - need.ahead > now()
    is_acting = is_acting or need.rule.acts and (need.is_last or is_rate_used)
    if need.is_last and not need.rule.acts then
      full, moment = need.limit, nil
    elseif is_rate_used and not need.rule.acts then
      full, moment = need.limit, need.used_until - need.ahead
    end
  end
  if is_acting then full = nil end
  local next_turn, was_late = turn + 1 / math.max(share, 0.001), queue.late_lane == lane
  queue.late_lane = nil
  if was_late and full and moment then return wait_again(base, queue, lane, next_turn, full, moment) end
  if was_late then redis.call('ZREM', base .. ':_later', lane) end
  redis.call('ZADD', base .. ':_turns', turn, LAST_TURN, next_turn, lane)
  if fair and fair ~= lane then redis.call('ZADD', base .. ':_passes', next_turn, fair) end
  if not full and queue.is_late then notify_worker(base) end
  if full and redis.call('EXISTS', lane_key(base, lane)) == 0 then
    redis.call('ZREM', base .. ':_turns', lane)
    wait_no_more(base, lane)
  elseif full then
    block_lane(base, lane, next_turn, full, moment or first_lapse(full))
  end
  forget_passed_over(base, lane)
  if queue.has_blocked then pass_on(lane, full) end
end

-- Claims the first job of a lane. Returns nil if it has none, or a limit keeps it; then also 'others' if this worker may not
-- run it now, but others may, or 'empty'.
--@rarely
local function claim_in_lane(key, queue, lane, turn, token, lease, classes, number)
  local base = string.sub(key, 1, -9)
  local entry, spot = unpack(redis.pcall('ZPOPMIN', lane_key(base, lane)))
  if not entry then  -- or it is no lane: the check puts its jobs back
    forget_passed_over(base, lane)
    pass_on(lane)
    return nil, 'empty'
  end
  local ident = string.match(entry, ' (.*)$')
  if unpark(base, ident) == 0 then return nil end
  local path = parse_ident(ident)
  if not path or not classes[path] then
    redis.call('LPUSH', key, ident)
    return path and {outcome = 'unknown', key = key, ident = ident} or nil
  end
  queue.lane = lane
  local reply = claim_safely(key, queue, ident, classes[path], token, lease, false, number, turn)
  if reply.outcome == 'limited' then
    park_again(key, queue, reply, spot, classes, turn)
    if reply.turn then
      redis.call('ZADD', base .. ':_turns', reply.turn, reply.lane)
      return nil
    elseif reply.lane ~= lane then
      return nil
    end
    return not is_elder_after_all(base, lane, reply) and pass_on(lane, reply.limit) or nil
  elseif reply.outcome == 'nothing' then
    park(base, lane, ident, spot)
    if queue.is_late then notify_worker(base) end
    return nil, 'others'
  elseif reply.outcome == 'claimed' then
    end_turn(base, queue, lane, turn, reply.needs or NOTHING)
  end
  return reply
end

-- Lets the lanes of a queue go for which it is time to look again; returns whether any lane waits, and whether it was time. This
-- worker tries the first of them, others the next ones. If there is only one, of one limit, it is returned instead.
--@rarely
local function let_late_lanes_go(base, queue)
  local later, moment = base .. ':_later', score(now())
  local first, at, second, at_second = unpack(redis.call('ZRANGE', later, 0, 1, 'WITHSCORES'))
  queue.looks_at = at or false
  if first and tonumber(at) <= tonumber(moment) then
    local are_more = second and tonumber(at_second) <= tonumber(moment)
    queue.looks_second_at = at_second
    if not are_more and not string.find(first, '\n', 1, true) then return true, true, first end
    local late = are_more and redis.call('ZRANGEBYSCORE', later, '-inf', moment, 'LIMIT', 0, MOST_TRIED) or {first}
    for i, lane in ipairs(late) do
      make_ready(base, lane)
      if i > 1 then notify_worker(base) end
    end
    return true, true
  end
  return first ~= nil
end

-- The lanes that may be tried next, the first one last: a turn and a name, and so on. Some are passed over; behind some that
-- were empty, there are several.
--@rarely
local function turns_from(base, passed_over, empty)
  local rows, known, first = {}, {[LAST_TURN] = true}, passed_over + #empty
  for _, lane in ipairs(empty) do known[lane] = true end
  local last = first + (#empty > 0 and SOME_TURNS or 1)
  local found = redis.call('ZRANGE', base .. ':_turns', first, last, 'WITHSCORES')
  for i = #found - 1, 1, -2 do
    if not known[found[i]] then rows[#rows + 1], rows[#rows + 2] = found[i + 1], found[i] end
  end
  return rows
end

-- Whether none of these lanes has a job any more; then what they were let go for goes to others.
--@rarely
local function are_empty(base, rows)
  local lanes, queues = {}, {}
  for i = 2, #rows, 2 do
    lanes[#lanes + 1] = lane_key(base, rows[i])
    for _, limit in ipairs(limits_in(rows[i])) do queues[#queues + 1] = limit .. ':queues' end
  end
  if redis.call('EXISTS', unpack(lanes)) > 0 then return false end
  local waiting = #queues > 0 and redis.pcall('SUNION', unpack(queues)) or NOTHING
  for i = 2, #rows, 2 do
    forget_passed_over(base, rows[i])
    if waiting.err or #waiting > 0 then pass_on(rows[i]) end
  end
  return true
end

-- The same, but lanes that are empty, all of some, go to those that were.
--@rarely
local function filled_turns_from(base, passed_over, empty)
  while true do
    local rows = turns_from(base, passed_over, empty)
    if #empty == 0 or #empty > MOST_TRIED or #rows == 0 or not are_empty(base, rows) then return rows end
    for i = 2, #rows, 2 do empty[#empty + 1] = rows[i] end
  end
end

-- Lets lanes without jobs take no turns; returns that there are none.
--@rarely
local function end_turns_of(base, lanes)
  if #lanes > 0 then redis.call('ZREM', base .. ':_turns', unpack(lanes)) end
  return {}
end

-- Forgets that a queue has lanes, if none is left.
--@rarely
local function forget_lanes(base, queue)
  if queue.has_blocked or redis.call('EXISTS', base .. ':_later') == 1 then return end
  redis.call('UNLINK', base .. ':_turns', base .. ':_passes')
  redis.call('HDEL', base .. ':hash', '_lanes', '_looks')
  queue.lanes = false
end

-- Claims the first job of the only lane for which it is time to look again. If others may be tried, it is let go, and takes
-- its turn; so it is if it need not wait again.
--@rarely
local function claim_in_late_lane(key, queue, lane, token, lease, classes, number)
  local base = string.sub(key, 1, -9)
  local first, turn, second = unpack(redis.call('ZRANGE', base .. ':_turns', 0, 1, 'WITHSCORES'))
  if second or first and first ~= LAST_TURN then return make_ready(base, lane) end
  queue.looks_at, queue.late_lane = nil, lane
  local reply = claim_in_lane(key, queue, lane, tonumber(turn) or 0, token, lease, classes, number)
  if queue.late_lane then make_ready(base, lane, turn) end
  queue.late_lane = nil
  return reply
end

-- Claims the first job of the first lane of a queue that may begin one. If there are more to look at than this step may,
-- the outcome is 'sorted'.
--@rarely
local function claim_in_turn(key, queue, token, lease, classes, number)
  local base, passed_over, rows, empty, reply, why = string.sub(key, 1, -9), 0, {}, {}, nil, nil
  queue.has_blocked, queue.is_late, queue.late_lane = let_late_lanes_go(base, queue)
  if queue.late_lane then reply = claim_in_late_lane(key, queue, queue.late_lane, token, lease, classes, number) end
  while not reply and tried < MOST_TRIED do
    tried = tried + 1
    if #rows == 0 then rows = filled_turns_from(base, passed_over, empty) end
    local lane, turn = rows[#rows], tonumber(rows[#rows - 1])
    if not lane then
      end_turns_of(base, empty)
      if passed_over == 0 then forget_lanes(base, queue) end
      return nil
    end
    rows[#rows], rows[#rows - 1] = nil, nil
    queue.looks_at = nil
    reply, why = claim_in_lane(key, queue, lane, turn, token, lease, classes, number)
    if why == 'empty' then empty[#empty + 1] = lane end
    if why == 'others' then passed_over = passed_over + 1 end
    if why ~= 'empty' then rows = {} end
    if queue.has_blocked then rows, empty = {}, end_turns_of(base, empty) end  -- others may have been let go
  end
  end_turns_of(base, empty)
  return reply or {outcome = 'sorted', key = key, ident = ''}
end

-- Claims the next job of a queue with lanes, given the first one of its waiting list if lanes take turns; nil if that comes
-- first, or has the next one.
--@rarely
local function claim_in_lanes(key, queue, ident, token, lease, classes, number)
  local is_at_another = false
  while queue.lanes == 'fair' and ident and not is_at_another do
    if sorted >= MOST_SORTED then return {outcome = 'sorted', key = key, ident = ''} end
    is_at_another = park_first(key, queue, classes)
    ident = first_of(key)
  end
  return not is_at_another and claim_in_turn(key, queue, token, lease, classes, number) or nil
end

-- Parks the first job of a list, with those behind it that need the same; returns whether this step may go on.
--@rarely
local function park_limited(key, queue, reply, classes)
  local model = model_of(classes[parse_ident(reply.ident)])
  queue.looks_at = nil
  park_first(key, queue, classes, not model.limits.fair and reply.lane or nil)
  if reply.limit then
    local base = string.sub(key, 1, -9)
    block_lane(base, reply.lane, last_turn(base), reply.limit, reply.moment)
    supersede(base, reply.lane, reply.need, classes)
  end
  return sorted < MOST_SORTED
end

-- Notes that a worker looks at the lanes of a queue at a moment, and when this was noted.
--@rarely
local function note_look(base, at, worker)
  redis.call('HSET', base .. ':hash', '_looks', at .. ' ' .. score(now()) .. ' ' .. worker)
end

-- Lets all lanes be looked at now, of the queues that were looked at: the clock was put back, and all that they wait for may come
-- as much sooner. Returns the moment.
--@rarely
local function look_at_all_lanes()
  for base, queue in pairs(open_queues) do
    local later = base .. ':_later'
    if queue and queue.lanes then redis.pcall('ZUNIONSTORE', later, 1, later, 'WEIGHTS', '0') end
  end
  return score(now())
end

-- Whether another worker waits that looks at the lanes of a queue at a moment, or before: else this one does; and the moment.
--@rarely
local function is_watched_by_another(worker, base, at)
  local looks = redis.call('HGET', base .. ':hash', '_looks') or ''
  local til, noted, other = string.match(looks, '^(%S+) (%S+) (.+)$')
  til, noted = tonumber(til or ''), tonumber(noted or '')  -- no numbers if another program wrote them
  if noted and noted > now() / 1000000 + CLOCK_MARGIN then
    at = look_at_all_lanes()
  elseif til and other ~= worker and til > now() / 1000000 and til <= tonumber(at) then
    local waits = redis.pcall('ZSCORE', shared_key(base, 'idle_workers'), other)
    if type(waits) == 'string' and tonumber(waits) > now() / 1000000 then return true, at end
  end
  note_look(base, at, worker)
  return false, at
end

-- When to look again at the lanes of the queues that were looked at, if any wait; whether another worker does; and the keys
-- of the queue, if it is the only one.
--@rarely
local function next_look_at_lanes(worker)
  local first, first_base, number = nil, nil, 0
  for base, queue in pairs(open_queues) do
    local at = queue and queue.lanes and queue.looks_at
    if at == nil then at = redis.pcall('ZRANGE', base .. ':_later', 0, 0, 'WITHSCORES')[2] end
    if at then number = number + 1 end
    if at and not (first and tonumber(first) <= tonumber(at)) then first, first_base = at, base end
  end
  local lanes_of, is_watched = number == 1 and first_base or nil, nil
  if first and worker then is_watched, first = is_watched_by_another(worker, first_base, first) end
  return first, is_watched, lanes_of
end

-- Lets a worker that took the job of a lane whose time had come look at the lanes of that queue the next time, too: it counts as
-- one that waits. Returns when that is; nil if it took another job.
--@rarely
local function look_on(worker, wait)
  if not let_out_of then return nil end
  redis.call('ZADD', shared_key(let_out_of, 'idle_workers'), score(now() + wait * 1000000), worker)
  note_look(let_out_of, looks_next_at, worker)
  return looks_next_at
end
