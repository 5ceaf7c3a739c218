-- Lanes: where jobs of a queue are parked that a limit keeps from beginning. A lane has the jobs of the queue that need
-- the same limits: so all of them may begin, or none. Its name are the keys of these limits, one in a line, and, behind a
-- tabulator, what becomes of jobs that may not begin, if other classes share a limit and may say something else: so all jobs
-- of a lane are treated alike. Beside a queue, there are:
--   _lane\n<lane>       sorted set of its jobs, as texts that begin with the pk, by when each was added or due
--   _parked             sorted set of the idents that are parked, by the same: another entry of a lane is only left over
--   _turns              sorted set of the lanes that may be tried, by their turns; its member '\n', which is no lane, has
--                       the last turn. The lane of jobs that no limit holds has the name ''
--   _passes             sorted set of the keys whose lanes take turns, by the turn of the next one, if they need more limits
--   _later              sorted set of the other lanes, by when to look again
--   _blocked\n<limit>   sorted set of the lanes that wait for a limit, by their turns
-- And beside a limit, '<limit>:queues' is the set of the queues with lanes that wait for it.

--@include clock
--@include signals

local LAST_TURN = '\n'

--@rarely
local function lane_key(base, lane)
  return base .. ':_lane\n' .. lane
end

--@rarely
local function limits_in(lane)
  local limits = {}
  for limit in string.gmatch(string.match(lane, '[^\t]*'), '[^\n]+') do limits[#limits + 1] = limit end
  return limits
end

-- The turns of the lanes of a queue go on from here, so that a lane that was away has saved nothing up.
--@rarely
local function last_turn(base)
  return tonumber(redis.call('ZSCORE', base .. ':_turns', LAST_TURN)) or 0
end

-- Lets a lane be tried.
--@rarely
local function make_ready(base, lane, turn)
  redis.call('ZREM', base .. ':_later', lane)
  redis.call('ZADD', base .. ':_turns', math.max(tonumber(turn) or 0, last_turn(base)), lane)
end

-- Lets the next worker try a lane.
--@rarely
local function let_lane_go(base, lane, turn)
  make_ready(base, lane, turn)
  notify_worker(base)
end

-- Lets the first lane that waits for a limit go, in each queue where one does: which of them begins a job is decided by
-- who claims first. What is broken in one queue keeps no other one.
--@rarely
local function let_lanes_go(limit)
  local queues = redis.pcall('SMEMBERS', limit .. ':queues')
  for _, base in ipairs(queues.err and {} or queues) do
    local lane, turn = unpack(redis.pcall('ZPOPMIN', base .. ':_blocked\n' .. limit))
    if lane then pcall(let_lane_go, base, lane, turn) else redis.call('SREM', limit .. ':queues', base) end
  end
end

-- Lets a lane wait for a limit, or until a moment.
--@rarely
local function block_lane(base, lane, turn, limit, moment)
  redis.call('ZREM', base .. ':_turns', lane)
  redis.call('ZADD', base .. ':_later', score(moment), lane)
  redis.call('ZADD', base .. ':_blocked\n' .. limit, turn, lane)
  redis.call('SADD', limit .. ':queues', base)
end

-- Forgets the lanes of a queue, in which no job is parked any more.
--@rarely
local function drop_lanes(base)
  for _, name in ipairs({':_turns', ':_later'}) do
    for _, lane in ipairs(redis.call('ZRANGE', base .. name, 0, -1)) do
      redis.call('UNLINK', lane_key(base, lane))
      for _, limit in ipairs(limits_in(lane)) do
        redis.call('UNLINK', base .. ':_blocked\n' .. limit)
        redis.call('SREM', limit .. ':queues', base)
      end
    end
  end
  redis.call('UNLINK', base .. ':_turns', base .. ':_later', base .. ':_passes')
end

-- An entry of a lane. Jobs that were added in one step are sorted by their pks.
--@rarely
local function entry_in_lane(ident)
  local pk = string.match(ident, '[^:]*$')
  return string.rep('0', 18 - #pk) .. pk .. ' ' .. ident
end

-- Lets a lane be tried that has a job now, unless it waits for something.
--@rarely
local function know_lane(base, lane)
  if not redis.call('ZSCORE', base .. ':_later', lane) then
    redis.call('ZADD', base .. ':_turns', 'NX', last_turn(base), lane)
  end
end

-- Puts a job in a lane.
--@rarely
local function park(base, lane, ident, spot)
  redis.call('ZADD', lane_key(base, lane), spot, entry_in_lane(ident))
  redis.call('ZADD', base .. ':_parked', spot, ident)
end

-- Takes a job out of the lane that it is in, as its limits are about to be others.
--@rarely
local function leave_lane(base, lane, ident)
  redis.pcall('ZREM', lane_key(base, lane), entry_in_lane(ident))
end

-- Whether a job was parked in a queue; then it no longer is.
--@rarely
local function unpark(base, ident)
  local number = redis.pcall('ZREM', base .. ':_parked', ident)
  return type(number) == 'number' and number or 0
end
