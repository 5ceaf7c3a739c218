-- First: the next job of several waiting lists, and of the lanes beside them.

--@include claim_in_lanes
--@include lists

-- How many suspects at the beginning of a list a call passes over at most, and how many entries it looks at in one step.
local MAX_PASSED, LOOK = 1000, 50

-- How many it has passed over in each list: while a script runs, they stay there.
local passed = {}

-- Whether a job is no suspect, or one that may be claimed now.
--@rarely
local function may_be_next(model, pk, number)
  local rescues = redis.pcall('HGET', hash_key(model_of(model), pk), '_rescues')
  local beside = type(rescues) == 'string' and suspects_beside(rescues)
  return not beside or allows(beside, number)
end

-- Claims a job that was taken out of a list. If a limit keeps it from beginning, it is parked, and the outcome is 'sorted'.
--@rarely
local function claim_apart(key, queue, ident, classes, token, lease, number)
  local reply = claim_safely(key, queue, ident, classes[parse_ident(ident)], token, lease, false, number)
  if reply.outcome ~= 'limited' then return reply end
  local _, spot = lane_of(job_of(classes[parse_ident(ident)], ident), string.sub(key, 1, -9))
  park_again(key, queue, reply, spot, classes)
  return {outcome = 'sorted', key = key, ident = ident}
end

-- Claims the first job behind the suspects of a list that are passed over; nil if there is none.
--@rarely
local function claim_behind_suspects(key, queue, token, lease, classes, number)
  if popped and popped[key] then end_batch() end
  while passed[key] < MAX_PASSED do
    local idents = redis.call('LRANGE', key, passed[key], passed[key] + LOOK - 1)
    for _, ident in ipairs(idents) do
      local path, pk = parse_ident(ident)
      if path and not classes[path] then
        return {outcome = 'unknown', key = key, ident = ident}
      elseif path and may_be_next(classes[path], pk, number) then
        redis.call('LREM', key, 1, ident)
        return claim_apart(key, queue, ident, classes, token, lease, number)
      end
      passed[key] = passed[key] + 1
    end
    if #idents < LOOK then return nil end
  end
end

-- The lists beside which a key of the lanes is of a wrong type.
local beside_broken_lanes = {}

-- The lists that were found empty: nothing is added to them while a script runs that claims nothing.
local empty_lists = {}

-- The reply if something with the lanes of a queue failed: an error if Redis accepts no writes; else none, as other lists
-- and queues are to go on.
--@rarely
local function reply_to_failure(key, failure)
  if is_refused_by_redis(failure) then return {err = text_of_error(failure)} end
  beside_broken_lanes[key] = true
end

-- Claims the next job of the lanes of a queue, as `claim_in_lanes` does. If a key of theirs is of a wrong type, they count as
-- empty.
--@rarely
local function claim_in_sound_lanes(key, queue, ident, token, lease, classes, number)
  local ok, reply = pcall(claim_in_lanes, key, queue, ident, token, lease, classes, number)
  if ok then return reply end
  return reply_to_failure(key, reply)
end

-- Claims the first job of a waiting list; nil if it has none. A key that is not a list counts as empty, as do the lists
-- of broken and of paused queues.
local function claim_from(key, token, lease, classes, number)
  local base = string.sub(key, 1, -9)
  local queue = knows_limits and open_queue(base)
  local has_lanes = queue and queue.lanes
  local ident = has_lanes ~= '1' and first_of(key)
  if not knows_limits and type(ident) == 'string' then queue = open_queue(base) end
  if not queue or ident and type(ident) ~= 'string' then
    empty_lists[key] = ident == false
    return nil
  end
  if has_lanes then
    local parked = sorted
    local reply = claim_in_sound_lanes(key, queue, ident, token, lease, classes, number)
    if reply then return reply end
    if not ident or sorted > parked then ident = first_of(key) end
  end
  if type(ident) ~= 'string' then
    empty_lists[key] = ident == false
    return nil
  end
  local path = parse_ident(ident)
  if not path then
    pop(key)
    set_aside(base, ident)
    return {outcome = 'garbage', key = key, ident = string.sub(ident, 1, 1000)}
  elseif not classes[path] then
    return {outcome = 'unknown', key = key, ident = ident}
  end
  if passed[key] then
    return claim_behind_suspects(key, queue, token, lease, classes, number)
  end
  local reply = claim_safely(key, queue, ident, classes[path], token, lease, true, number)
  if reply.outcome == 'limited' then
    local ok, may_go_on = pcall(park_limited, key, queue, reply, classes)
    if not ok then return reply_to_failure(key, may_go_on) end
    return may_go_on and claim_from(key, token, lease, classes, number) or {outcome = 'sorted', key = key, ident = ident}
  end
  if reply.outcome == 'nothing' and is_concurrent then
    passed[key] = 1
    return claim_behind_suspects(key, queue, token, lease, classes, number)
  end
  return reply
end

-- Claims the next job of another class, if it is among the first hundred of a list, as a key that all jobs of the class
-- of the first one share is broken; nil if there is none. Other entries stay where they are.
--@rarely
local function claim_behind(key, token, lease, classes)
  end_batch()
  local base, idents = string.sub(key, 1, -9), redis.call('LRANGE', key, 0, 99)
  local broken_path = parse_ident(idents[1])
  for _, ident in ipairs(idents) do
    local path = parse_ident(ident)
    if path and path ~= broken_path and not classes[path] then
      return {outcome = 'unknown', key = key, ident = ident}
    elseif path and path ~= broken_path then
      redis.call('LREM', key, 1, ident)
      return claim_apart(key, sound_queue(base), ident, classes, token, lease)
    end
  end
end

-- Nothing is added to the lists before this one while a script runs: they had no job.
local first_list = 1

-- Claims the first job of the first waiting list that has one. If a key that all jobs of its class share is broken, the
-- next job of another class; the error is the reply only if no list has such a job.
local function claim_first(lists, token, lease, classes, number)
  local failed
  local i = next_filled(lists, first_list)
  while i do
    first_list = i
    local reply = claim_from(lists(i)[i], token, lease, classes, number)
    if reply and reply.err and not number and not is_refused_by_redis(reply) then
      reply = claim_behind(lists(i)[i], token, lease, classes) or reply
    end
    if reply and (not reply.err or is_refused_by_redis(reply)) then
      return reply
    end
    failed = failed or reply
    i = next_filled(lists, i + 1)
  end
  return failed or {outcome = 'nothing'}
end
