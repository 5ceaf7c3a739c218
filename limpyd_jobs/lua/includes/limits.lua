-- Limits: how many jobs may run at once, or begin in a time, of those that have the same value in a field, or of all. The
-- limits of a class are part of its model: {fields: the names of what is to be read of a job, fair: whether lanes take
-- turns, rules: [{key: of its limits, or none if they are shared, name, field: the number of its field, concurrency,
-- rate: microseconds for each unit, most: how many units in the time of the rate, drops: whether jobs that may not begin are canceled, newest: whether the older ones
-- that wait are, replaces: whether one that runs is, too, acts: whether it is any of these, burst, weight: a number, or
-- that of its field}…], acts: whether one of the rules does, drops: whether one does, ways: what the names of its lanes end
-- with}.
--
-- What was set for a limit holds in place of what the class says: a hash beside the queues has a text for all keys of a
-- limit, and one for each key, such as 'concurrency=3 share=2'.

--@include clock
--@include records
--@include shared_key
--@include slots

-- A job that needs several limits may never find all of them free at once, if others take each as soon as it is. So the
-- lane of one that was passed over for longer than this becomes the elder of all queues: of some of its limits, one slot is
-- left to it until it begins, for a minute at most. It has to look within a second once a slot is: microseconds.
local PATIENCE, ELDER_LASTS, ELDER_LOOKS = 500000, 60000000, 1000000

-- For how long to look away from a limit that nothing ends: microseconds.
local LOOK_AT_LIMITS = 60000000

local LONGEST_KEY = 200

-- Whether a job has begun, and goes on: it waited for a signal, or for what it spawned, or stopped in the middle of a loop. A
-- limit may let it wait, but it is not one too many: what it did would be left half-done.
--@rarely
local function has_begun(job)
  local signals, spawned, cursor, waits = unpack(redis.call('HMGET', job.key, '_signals', '_spawned', '_cursor', '_waits'))
  return signals and tell_of_begin(signals) or spawned or cursor or string.find(waits or '', '^[^\n]*\n%l+ %S')
end

-- The beginning of the keys of a limit, and the whole key for a value of its field.
--@rarely
local function keys_of_limit(rule, base, value)
  local prefix = rule.key or shared_key(base, '_limit:' .. rule.name)
  if not rule.field then return prefix, prefix end
  if #value > LONGEST_KEY or string.find(value, '^#') or string.find(value, '%c') then
    value = '#' .. redis.sha1hex(value)
  end
  return prefix, prefix .. ':' .. value
end

-- Whether a job has run before, and is tried again, or was lost: it was let begin, and is not one too many now.
--@rarely
local function was_run_before(job)
  local tries, rescues = unpack(redis.call('HMGET', job.key, 'tries', '_rescues'))
  return rescues or (tonumber(tries or '') or 0) > 0
end

-- What a job needs to begin, given the values of the fields of its limits, and, behind them, what it holds; and the name of
-- its lane. Those limits come first where jobs that may not begin do not just wait. A limit does not hold for a job that has
-- no value. One that was taken by hand has used its rate already.
--@rarely
local function needs_of(model, base, values)
  local needs, limits, paid = {}, {}, {}
  local held = values[#model.limits.fields + 1] or ''
  for interval, limit in string.gmatch('\n' .. held, '\nr %S+ (%S+) ([^\n]+)') do paid[limit] = interval end
  for _, rule in ipairs(model.limits.rules) do
    local value = not rule.field or values[rule.field]
    if value and value ~= '' then
      local prefix, limit = keys_of_limit(rule, base, value)
      local weight = rule.weigh and values[rule.weigh] or rule.weight or 1
      local need = {rule = rule, prefix = prefix, limit = limit, weight = weight, paid = paid[limit]}
      table.insert(needs, rule.acts and 1 or #needs + 1, need)
      limits[#limits + 1] = limit
    end
  end
  return needs, table.concat(limits, '\n') .. (#limits > 0 and model.limits.ways or '')
end

-- A number among some words; nil if another program wrote something else there.
--@rarely
local function number_in(words, name)
  local number = tonumber(words and string.match(words, name .. '=(%S+)'))
  return number and number >= 0 and number < 1e16 and number or nil
end

--@rarely
local function set_value(need, name)
  return number_in(need.of_key, name) or number_in(need.of_all, name) or need.rule[name]
end

-- The elder, as it is stored; nil if there is none: {til, called: when a slot was left to it that it did not look at yet, or 0,
-- lacks: the number of the limit that keeps it from beginning, whose next slot is left to it, all_til: until when those of its
-- other limits are, own: the base of its queue and its lane}.
--@rarely
local function elder_in(text)
  local til, called, lacks, all_til, own = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return til and tonumber(til) > now() and {
    til = til, called = tonumber(called), lacks = tonumber(lacks), all_til = tonumber(all_til), own = own,
  } or nil
end

--@rarely
local function write_elder(base, elder)
  redis.call('HSET', shared_key(base, '_limits'), '\nelder',
    string.format('%s %.0f %d %.0f %s', elder.til, elder.called, elder.lacks, elder.all_til, elder.own))
end

-- Reads what was set for some limits, and which lane is the elder.
--@rarely
local function read_set_values(needs, base)
  local names = {}
  for i, need in ipairs(needs) do names[2 * i - 1], names[2 * i] = need.prefix, need.limit end
  local texts = redis.pcall('HMGET', shared_key(base, '_limits'), '\nelder', unpack(names))
  if texts.err then return end
  for i, need in ipairs(needs) do need.of_all, need.of_key = texts[2 * i], texts[2 * i + 1] end
  needs.elder = elder_in(unpack(texts))
end

-- When the first slot of a limit that is full lapses.
--@rarely
local function first_lapse(limit)
  redis.call('ZREMRANGEBYSCORE', limit .. ':slots', '-inf', score(now()))
  local ends = tonumber(redis.call('ZRANGE', limit .. ':slots', 0, 0, 'WITHSCORES')[2])
  return ends and math.ceil(ends * 1000000) or now() + LOOK_AT_LIMITS
end

-- Whether a slot of a limit is left to the elder.
--@rarely
local function is_left(elder, limit)
  for i, each in ipairs(limits_in(string.match(elder.own, '^[^\n]*\n(.*)$'))) do
    if each == limit then return i == elder.lacks or now() <= elder.all_til end
  end
  return false
end

-- Leaves the last slot of a limit to another lane, which is the elder, and lets that go; returns whether it did. If no worker
-- looks at the elder, as its queue is paused, or all who serve it are busy, it is none any more.
--@rarely
local function leave_to_elder(limit, elder, own)
  if not elder or elder.own == own or not is_left(elder, limit) then return false end
  local base, lane = string.match(elder.own, '^([^\n]*)\n(.*)$')
  local is_deaf = elder.called > 0 and now() - elder.called > ELDER_LOOKS
  if is_deaf or not pcall(let_lane_go, base, lane) then
    redis.call('HDEL', shared_key(base, '_limits'), '\nelder', '\npassed\n' .. elder.own)
    return false
  elseif elder.called == 0 then
    elder.called = now()
    write_elder(base, elder)
  end
  return true
end

-- When to look again, if so many run that no other job may begin; nil if there is room.
--@rarely
local function full_until(need, ident, elder, own)
  local most = set_value(need, 'concurrency')
  if not most then return nil end
  local moment, slots = score(now()), need.limit .. ':slots'
  local taken = redis.call('ZCOUNT', slots, '(' .. moment, '+inf')
  if taken >= most and (tonumber(redis.call('ZSCORE', slots, ident)) or 0) > now() / 1000000 then taken = taken - 1 end
  need.is_last, need.is_full = taken + 1 >= most, taken >= most
  if taken < most and taken + 1 >= most and leave_to_elder(need.limit, elder, own) then return now() + ELDER_LOOKS end
  return taken >= most and (most > 0 and first_lapse(need.limit) or now() + LOOK_AT_LIMITS) or nil
end

-- How far in the future all that was used of a rate may be free again, at most: a hundred years, in microseconds.
local LONGEST_DEBT = 3155760000000000

-- Notes when all that was used of a rate will be free again, and the moment of the note: if that is so already, there is nothing
-- to note.
--@rarely
local function use_rate(limit, used_until)
  used_until = math.min(used_until, now() + LONGEST_DEBT)
  if used_until <= now() then
    redis.call('DEL', limit .. ':rate')
    return
  end
  local left = math.max(1, math.ceil((used_until - now()) / 1000))
  redis.call('SET', limit .. ':rate', string.format('%.0f %.0f', used_until, now()), 'PX', string.format('%.0f', left))
end

-- When all that was used of a rate will be free again. If the clock was put back since that was noted, it is sooner by as much.
--@rarely
local function rate_used_until(limit)
  local til, noted = string.match(redis.call('GET', limit .. ':rate') or '', '^(%d+) ?(%d*)$')
  local used_until, put_back = tonumber(til or '') or 0, (tonumber(noted or '') or 0) - now()
  if put_back > 0 then
    used_until = used_until - put_back
    use_rate(limit, used_until)
  end
  return math.max(used_until, now())
end

-- When to look again, if too many have begun; nil if another job may begin. A rate is known by the moment at which all that
-- was used will be free again. A weight is used whole if anything is free: the next ones wait for longer. One that is above all
-- that the rate allows in its time, or at once, is noted.
--@rarely
local function used_up_until(need)
  local interval = set_value(need, 'rate')
  if not interval then return nil end
  if need.paid then return nil end
  need.interval, need.used_until = interval, rate_used_until(need.limit)
  local burst, most = set_value(need, 'burst'), set_value(need, 'most')
  need.ahead = (burst - 1) * interval
  if most and (tonumber(need.weight) or 0) > math.max(most, burst) then
    need.above = math.max(most, burst)
    return now()
  end
  local free_at = need.used_until - need.ahead
  return free_at > now() and free_at or nil
end

-- Until when a limit rests, or its key: the later of both, so that a pause of all holds for each key.
--@rarely
local function rests_until(need)
  local rest = math.max(number_in(need.of_key, 'rest') or 0, number_in(need.of_all, 'rest') or 0)
  need.rests = rest > now()
  return need.rests and rest or nil
end

-- The first limit that keeps a job from beginning, when to look again, and what it needs of it; nil if it may begin. A key of a wrong type
-- keeps it, too.
--@rarely
local function obstacle_of(needs, base, ident, lane)
  if #needs == 0 then return nil end
  read_set_values(needs, base)
  local own = base .. '\n' .. (lane or '')
  for _, need in ipairs(needs) do
    local ok, moment = pcall(function()
      return rests_until(need) or full_until(need, ident, needs.elder, own) or used_up_until(need)
    end)
    moment = ok and moment or not ok and now() + LOOK_AT_LIMITS
    if moment then return need.limit, moment, need end
  end
end

-- What is stored with a job that begins.
--@rarely
local function text_of_needs(needs)
  local lines = {}
  for _, need in ipairs(needs) do
    if need.is_last ~= nil then lines[#lines + 1] = 's ' .. need.limit end
    if need.interval or need.paid then
      lines[#lines + 1] = string.format('r %s %s %s', need.weight, need.interval or need.paid, need.limit)
    end
  end
  return #lines > 0 and table.concat(lines, '\n') or nil
end

-- Takes what a job needs that begins.
--@rarely
local function take_needs(needs, ident, lease)
  for _, need in ipairs(needs) do
    if need.is_last ~= nil then redis.call('ZADD', need.limit .. ':slots', slot_end(lease), ident) end
    if need.interval then
      need.used_until = need.used_until + need.weight * need.interval
      use_rate(need.limit, need.used_until)
    end
  end
end

-- The first weight that is not a number, of all that a job needs.
--@rarely
local function wrong_weight(needs)
  for _, need in ipairs(needs) do
    local weight = tonumber(need.weight)
    if not weight or not (weight >= 0 and weight < 1e15) then return need end
    need.weight = weight
  end
end

-- Where a job stands among those of its lane: by when it came to a queue, or the end of its delay. A place before all others
-- is negative. One that is no place counts as none.
--@rarely
local function place_in_lane(spot, delayed_until, added, requeued_at)
  local own = tonumber(spot)
  if own and not (math.abs(own) < 1e15) then own = nil end
  if own and own < 0 then return string.format('%.17g', own) end
  local came = own and own * 1000000 or math.max(parse_date(added) or 0, parse_date(requeued_at) or 0)
  return score(math.max(came, parse_date(delayed_until) or 0))
end

-- What a stored job needs, the name of its lane, and its place there; nil if it does not wait.
--@rarely
local function lane_of(job, base)
  local hash = redis.pcall('HMGET', job.key, 'status', '_place', 'delayed_until', 'added', '_requeued_at',
    unpack(job.model.limits and job.model.limits.fields or NOTHING))
  local status, spot, delayed_until, added, requeued_at = unpack(hash)
  if hash.err or status ~= STATUSES.WAITING then return nil end
  spot = place_in_lane(spot, delayed_until, added, requeued_at)
  if not job.model.limits then return '', spot end
  local _, lane = needs_of(job.model, base, {unpack(hash, 6, #hash)})
  return lane, spot
end

--@rarely
local function park_with_others(base, job)
  local lane, spot = lane_of(job, base)
  if not lane or redis.call('EXISTS', lane_key(base, lane)) == 0 then return false end
  know_lane(base, lane)
  park(base, lane, job.ident, spot)
  notify_worker(base)
  return true
end

-- Puts a job that is given back in its lane again, if that has others: so it keeps its place. Returns whether it did: not
-- if a key of the lanes is of a wrong type.
--@rarely
local function is_back_in_lane(base, job)
  local ok, is_back = pcall(park_with_others, base, job)
  return ok and is_back
end

-- A parked job that is about to be changed is sorted anew, but keeps its place.
--@rarely
local function sort_again(base, job, changes)
  local lane, spot = lane_of(job, base)
  if spot and unpark(base, job.ident) == 1 then
    leave_lane(base, lane, job.ident)
    changes._place = spot
    redis.call('LPUSH', base .. ':waiting', job.ident)
    notify_worker(base)
  end
end

-- Which limit the elder lacks, and until when a slot of each of its others is left to it, too. Only once it has the one that it
-- lacked, and lacks another: for no longer than it has waited. So no limit is unused for long if a job holds another one for
-- hours. If it waits for a rate: for half a second.
--@rarely
local function lacking_of(elder, lane, reply, since)
  local need, lacks = reply.need, 0
  for i, each in ipairs(limits_in(lane)) do
    if each == need.limit then lacks = i end
  end
  if not need.is_full then return lacks, not need.rests and reply.moment - now() <= PATIENCE and reply.moment or 0 end
  if not elder or elder.lacks == lacks then return lacks, elder and elder.all_til or 0 end
  return lacks, now() + math.max(PATIENCE, now() - since)
end

-- Notes that a lane with several limits was passed over, as one of them was not free. Returns whether it is the elder, to
-- which all the others are left.
--@rarely
local function is_elder_after_all(base, lane, reply)
  if not string.find(lane, '\n', 1, true) or not reply.need then return false end
  local key, own = shared_key(base, '_limits'), base .. '\n' .. lane
  local since, text = unpack(redis.call('HMGET', key, '\npassed\n' .. own, '\nelder'))
  local elder = elder_in(text)
  if elder and elder.own ~= own then return false end
  if not since then redis.call('HSET', key, '\npassed\n' .. own, string.format('%.0f', now())) end
  if not elder and (not since or now() - tonumber(since) <= PATIENCE) then return false end
  local lacks, all_til = lacking_of(elder, lane, reply, tonumber(since) or now())
  local til = elder and elder.til or string.format('%.0f', now() + ELDER_LASTS)
  if not elder or elder.called > 0 or elder.lacks ~= lacks then
    write_elder(base, {til = til, called = 0, lacks = lacks, all_til = all_til, own = own})
  end
  return now() <= all_til
end

-- A lane with several limits is passed over no more, as a job of it begins, or it has none.
--@rarely
local function forget_passed_over(base, lane)
  if not string.find(lane, '\n', 1, true) then return end
  local key = shared_key(base, '_limits')
  local elder = elder_in(redis.call('HGET', key, '\nelder'))
  redis.call('HDEL', key, '\npassed\n' .. base .. '\n' .. lane)
  if elder and elder.own == base .. '\n' .. lane then redis.call('HDEL', key, '\nelder') end
end

-- Sets some words of what holds for a limit in place of what its class says; a value that is empty unsets one. Returns all
-- that is set.
--@rarely
local function set_words(base, limit, words)
  local key, kept = shared_key(base, '_limits'), {}
  for name, value in string.gmatch(redis.call('HGET', key, limit) or '', '(%l+)=(%S+)') do
    if not words[name] then kept[#kept + 1] = name .. '=' .. value end
  end
  for name, value in pairs(words) do
    if value ~= '' then kept[#kept + 1] = name .. '=' .. value end
  end
  table.sort(kept)
  local text = table.concat(kept, ' ')
  if text == '' then redis.call('HDEL', key, limit) else redis.call('HSET', key, limit, text) end
  return text
end
