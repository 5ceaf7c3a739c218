-- Superseding: where the newest job counts, the older ones that are parked for the same limit are canceled, and maybe the
-- one that runs.

--@include canceling
--@include limits

-- How many jobs are canceled in one step, and among how many holders of slots the first one is looked for.
local MOST_SUPERSEDED, MOST_COMPARED = 500, 100

-- The job of an ident, if the limit of its class supersedes in this way; else nil: of classes that share a limit, each says
-- what becomes of its own jobs.
--@rarely
local function job_superseded_by(rule, ident, classes, way)
  local path = parse_ident(ident)
  local job = path and classes[path] and job_of(classes[path], ident)
  for _, own in ipairs(job and job.model.limits and job.model.limits.rules or NOTHING) do
    if own.name == rule.name and own.key == rule.key and own[way] then return job end
  end
end

-- Whether a parked job was added after another one, if there is one. Its place does not say so: a job that is tried again
-- comes later than some that were added after it.
--@rarely
local function is_newer(entry, other)
  return not other or entry.added > other.added or entry.added == other.added and entry.text > other.text
end

-- The jobs that are parked for a limit, in all lanes that wait for it, and the given one, and may be superseded:
-- {job, added, text: the entry, key: of the lane, base: of the queue}…, and the newest of them.
--@rarely
local function parked_for(limit, base, lane, rule, classes)
  local entries, seen, newest = {}, {}, nil
  local function look_into(queue, name)
    local key = lane_key(queue, name)
    local found = seen[key] and NOTHING or redis.pcall('ZRANGE', key, 0, MOST_SUPERSEDED)
    seen[key] = true
    for i = 1, #found do
      local job = job_superseded_by(rule, string.match(found[i], ' (.*)$') or '', classes, 'newest')
      if job and not has_begun(job) and type(redis.pcall('ZSCORE', queue .. ':_parked', job.ident)) == 'string' then
        local added = redis.call('HGET', job.key, 'added') or ''
        local entry = {job = job, added = added, text = found[i], key = key, base = queue}
        entries[#entries + 1] = entry
        newest = is_newer(entry, newest) and entry or newest
      end
    end
  end
  look_into(base, lane)
  local queues = redis.pcall('SMEMBERS', limit .. ':queues')
  for _, queue in ipairs(queues.err and NOTHING or queues) do
    local lanes = redis.pcall('ZRANGE', queue .. ':_blocked\n' .. limit, 0, MOST_SUPERSEDED)
    for _, name in ipairs(lanes.err and NOTHING or lanes) do look_into(queue, name) end
  end
  return entries, newest
end

-- Cancels a parked job.
--@rarely
local function cancel_parked(entry, reason)
  local job = entry.job
  redis.call('ZREM', entry.key, entry.text)
  local status, spawned = unpack(redis.call('HMGET', job.key, 'status', '_spawned'))
  if unpark(entry.base, job.ident) == 0 or status ~= STATUSES.WAITING then return end
  update(job.model, job.pk, {
    status = STATUSES.CANCELED, queued = false, _cancel_reason = reason, _claim_token = false, _rescues = false,
    _last_claim = false,
  })
  if spawned then cancel_spawned(spawned, nil, true) end
end

-- The job that holds a slot of a limit and was added first; nil if one that does is canceled already.
--@rarely
local function oldest_holder(limit, rule, classes)
  local oldest
  for _, ident in ipairs(redis.call('ZRANGE', limit .. ':slots', 0, MOST_COMPARED - 1)) do
    local job = job_superseded_by(rule, ident, classes, 'replaces')
    local status, added, token, queue_key, spawned = unpack(job and redis.call(
      'HMGET', job.key, 'status', 'added', '_claim_token', '_queue_key', '_spawned') or NOTHING)
    if token and status == STATUSES.CANCELED then return nil end
    if token and status == STATUSES.RUNNING and (not oldest or (added or '') < oldest.added) then
      oldest = {job = job, added = added or '', token = token, queue_key = queue_key, spawned = spawned}
    end
  end
  return oldest
end

-- Cancels the oldest job that runs for a newer one that waits; or that one, if all that run are newer.
--@rarely
local function replace_holder(need, waiting, classes, reason)
  local holder = oldest_holder(need.limit, need.rule, classes)
  if holder and holder.added <= waiting.added then
    cancel_running(holder.job, holder.token, holder.queue_key, holder.spawned, reason)
  elseif holder then
    cancel_parked(waiting, 'a newer job runs, of its limit ' .. need.rule.name)
  end
end

-- Lets only the newest of the jobs wait that a limit keeps from beginning, if its rule says so. One more is in a lane now.
--@rarely
local function supersede(base, lane, need, classes)
  local rule = need.rule
  if not rule.newest then return end
  end_batch()
  local reason = 'a newer job waits for its limit ' .. rule.name
  local entries, newest = parked_for(need.limit, base, lane, rule, classes)
  for i = 1, math.min(#entries, MOST_SUPERSEDED) do
    if entries[i] ~= newest then cancel_parked(entries[i], reason) end
  end
  if rule.replaces and need.is_full and newest then replace_holder(need, newest, classes, reason) end
end
