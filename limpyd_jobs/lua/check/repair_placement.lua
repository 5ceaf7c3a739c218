-- verb: repair placement
-- what: looks whether a job stands where its hash says, and nowhere else, or puts that right
-- KEYS     the queues it may stand in, beside the one that its hash names: model name and pk
-- request
--   job_model        none for an entry that is not an ident
--   ident, repair
--   queue_model, queue_name   where it belongs if its hash names no queue; no name if its class has none
--   is_servable      '1' if that queue may be made
--   in_no_list       '1' if it is known to stand in no waiting list of KEYS
--   lease, token     of a job that runs without one; the longest lease of a job that no worker has a claim on
--   delayed_until    its field, as it was read
--   due              the score of that date, or none if it is not a date
--   seen             the fields of its hash when it was found, joined by NUL: if they have changed, nothing is wrong
--   unknown_status   what to do if its status is not valid and it is in no queue: 'requeue'; 'delete': it is canceled,
--                    and the caller deletes it; or another word
-- reply
--   done   {problems: [problem, place or '', '1' if it can be repaired or '']…}
--
-- Problems are left over from a job that was not completely written.

--@include clock
--@include idents
--@include home_queues

local ident, repairs, home, due = request.ident or '', request.repair, '', request.due
local LIVE = {[STATUSES.WAITING] = true, [STATUSES.DELAYED] = true, [STATUSES.RUNNING] = true}
local FINAL = {[STATUSES.SUCCESS] = true, [STATUSES.ERROR] = true, [STATUSES.CANCELED] = true}

local job = request.job_model and job_of(request.job_model, ident)
local problems, changes, commands = {}, {}, {}

local function report(problem, where, cannot)
  problems[#problems + 1] = {problem, where or '', cannot and '' or '1'}
end

-- Everything is read before anything is written.
local function later(...)
  commands[#commands + 1] = {...}
end

local function probe_to_repair(command, key)
  if repairs then probe(command, key) end
end

-- Where the ident stands: {base: number of times}, and in how many places in all.
local standing = {waiting = {}, delayed = {}, _running = {}, _parked = {}}
local total = {waiting = 0, delayed = 0, _running = 0, _parked = 0}

local function stands(name, base, times)
  if times > 0 then
    standing[name][base] = times
    total[name] = total[name] + times
  end
end

local function look_in(base, in_no_list)
  if not in_no_list and redis.call('TYPE', base .. ':waiting').ok == 'list' then
    stands('waiting', base, #redis.call('LPOS', base .. ':waiting', ident, 'COUNT', 0))
  end
  for _, name in ipairs({'delayed', '_running', '_parked'}) do
    local score = redis.pcall('ZSCORE', base .. ':' .. name, ident)
    stands(name, base, type(score) == 'string' and 1 or 0)
  end
end

-- Takes the ident out of a place, except one entry in the queue to keep it in, if any.
local function remove(name, keep)
  for base, times in pairs(standing[name]) do
    local key = base .. ':' .. name
    local spared = base == keep and 1 or 0
    if name ~= 'waiting' and spared == 0 then
      later('ZREM', key, ident)
    elseif name == 'waiting' and times > spared then
      later('LREM', key, spared - times, ident)
    end
  end
end

local function must_not_stand_in(name, problem)
  if total[name] > 0 then
    local base = next(standing[name])
    report(problem, base .. ':' .. name)
    remove(name)
  end
end

-- Of the queues where it stands, the one to keep it in: the one that its hash names, but one of the model of its class
-- rather than one of another model, except while it runs there.
local function best(name)
  local queue_model, named = model_of(request.queue_model), standing[name][home] and home
  if named and (name == '_running' or is_of_model(queue_model, named)) then return named end
  for base in pairs(standing[name]) do
    if is_of_model(queue_model, base) then return base end
  end
  return named or next(standing[name])
end

local function remove_what_is_not_a_job(problem)
  for name in pairs(standing) do
    if problem == 'no ident' then
      for base in pairs(standing[name]) do
        later('RPUSH', base .. ':_quarantine', ident)
        later('LTRIM', base .. ':_quarantine', -1000, -1)
      end
    end
    must_not_stand_in(name, problem)
  end
end

local function is_before(one, other)
  if one.is_claimed ~= other.is_claimed then return one.is_claimed end
  if one.is_running ~= other.is_running then return one.is_running end
  if one.priority ~= other.priority then return one.priority > other.priority end
  return (tonumber(one.pk) or math.huge) < (tonumber(other.pk) or math.huge)
end

local function rank(pk)
  local queued, token, status, priority, followed_by = unpack(redis.call(
    'HMGET', hash_key(job.model, pk), 'queued', '_claim_token', 'status', 'priority', '_followed_by'))
  -- one that runs may be followed by another one, which does not begin before it has ended
  local is_queued = queued == '1' and status ~= STATUSES.CANCELED and not (token == false and FINAL[status])
  return {
    pk = pk, is_queued = is_queued, is_claimed = token ~= false, is_running = status == STATUSES.RUNNING,
    priority = tonumber(priority) or 0, is_followed = token and followed_by and true,
  }
end

-- Whether another queued job of the same identifier is the one to keep.
local function has_better(identifier)
  local indexes, own = job.model.indexes, rank(job.pk)
  if own.is_followed then return false end
  for _, pk in ipairs(redis.pcall('SINTER', indexes.identifier[1] .. identifier, indexes.queued[1] .. '1')) do
    local other = rank(pk)
    local counts = pk ~= job.pk and other.is_queued and not other.is_followed
    if counts and (not own.is_queued or is_before(other, own)) then
      return true
    end
  end
end

local function must_not_be_claimed(hash)
  must_not_stand_in('_running', 'lease of no worker')
  if hash._claim_token then
    report('token without lease')
    changes._claim_token = false
  end
end

local function must_be_queued(hash)
  if hash.queued ~= '1' then
    report('not queued')
    changes.queued = '1'
  end
end

-- The lease of a job that is only presumed to run is not renewed: version 2 ran it. Its claim is that of a check, if any.
local function shorten_lease(hash)
  local key, most = next(standing._running) .. ':_running', score(now() + request.lease * 1000000)
  local is_presumed = not hash._claim_token or string.sub(hash._claim_token, 1, 6) == 'check:'
  if is_presumed and tonumber(redis.call('ZSCORE', key, ident)) > tonumber(most) then
    report('presumed to run')
    later('ZADD', key, most, ident)
  end
end

local function repair_running(hash)
  if not FINAL[hash.status] then must_be_queued(hash) end
  -- a job that version 2 runs has a lease without a claim once it was found
  if not hash._claim_token and total._running == 0 then
    report('not claimed')
    changes._claim_token = checked_token(request.token)
  end
  must_not_stand_in('waiting', 'runs and waits')
  must_not_stand_in('_parked', 'runs and waits')
  must_not_stand_in('delayed', 'runs and is delayed')
  if total._running > 1 then
    report('several leases')
    remove('_running', best('_running'))
  elseif total._running == 0 then
    report('no lease', home, home == '')
    if home ~= '' then
      probe_to_repair('ZCARD', home .. ':_running')
      later('ZADD', home .. ':_running', score(now() + request.lease * 1000000), ident)
      changes._queue_key = home
    end
  else
    shorten_lease(hash)
  end
end

local function repair_delayed(hash)
  must_be_queued(hash)
  must_not_be_claimed(hash)
  must_not_stand_in('waiting', 'delayed and waits')
  must_not_stand_in('_parked', 'delayed and waits')
  local base = best('delayed') or home
  local key, at = base .. ':delayed', due
  if base == '' then
    report('in no queue', '', true)
    return
  end
  local stored = redis.pcall('ZSCORE', key, ident)
  stored = type(stored) == 'string' and stored
  if not due then
    at = stored or score(now())
    report('no date', request.delayed_until or '')
    changes.delayed_until = date_text(math.floor(tonumber(at) * 1000000))
  end
  if total.delayed == 0 then
    report('in no delayed set', key)
  elseif math.abs(tonumber(stored) - tonumber(at)) > 0.0001 then
    report('wrong score', key)
  end
  if total.delayed > 1 then
    report('in several sets', key)
    remove('delayed', base)
  end
  if #problems > 0 then
    probe_to_repair('ZCARD', key)
    later('ZADD', key, at, ident)
    changes._queue_key = base
  end
end

local function repair_waiting(hash)
  must_be_queued(hash)
  must_not_be_claimed(hash)
  must_not_stand_in('delayed', 'waits and is delayed')
  if hash.status ~= STATUSES.WAITING then
    report('no status')
    changes.status = STATUSES.WAITING
  end
  if total.waiting > 0 then must_not_stand_in('_parked', 'in several places') end
  if total.waiting > 1 then
    report('in several places', best('waiting') .. ':waiting')
    remove('waiting', best('waiting'))
    changes._queue_key = best('waiting')
  elseif total._parked > 1 then
    report('in several places', best('_parked') .. ':_parked')
    remove('_parked', best('_parked'))
    changes._queue_key = best('_parked')
  elseif total.waiting + total._parked == 0 then
    report('in no list', home, home == '')
    if home ~= '' then
      probe_to_repair('LLEN', home .. ':waiting')
      later('LPUSH', home .. ':waiting', ident)
      changes._queue_key = home
    end
  end
end

local function repair_ended(hash)
  if hash.queued then
    report('ended and queued')
    changes.queued = false
  end
  must_not_be_claimed(hash)
  must_not_stand_in('waiting', 'ended and waits')
  must_not_stand_in('_parked', 'ended and waits')
  must_not_stand_in('delayed', 'ended and is delayed')
end

local function cancel_second(hash, is_held)
  report('second of its identifier')
  changes.status, changes.queued = STATUSES.CANCELED, false
  if not is_held then
    changes._claim_token = false
    for name in pairs(standing) do remove(name) end
  end
end

local function repair_unknown(hash)
  local choice = request.unknown_status
  local is_unplaceable = choice == 'requeue' and home == ''
  if choice == 'requeue' and hash.identifier and has_better(hash.identifier) then
    cancel_second(hash, false)
    return
  end
  report('unknown status', hash.status, is_unplaceable)
  must_not_be_claimed(hash)
  if choice == 'delete' then
    changes.status = STATUSES.CANCELED
  elseif choice == 'requeue' and not is_unplaceable then
    changes.status, changes.queued, changes._queue_key = STATUSES.WAITING, '1', home
    changes.start, changes['end'], changes.delayed_until = false, false, false
    probe_to_repair('LLEN', home .. ':waiting')
    later('RPUSH', home .. ':waiting', ident)
  end
end

-- Whether it was deferred to the delayed set, because a worker could not resolve its class, whatever its hash says.
local function is_deferred()
  local base = next(standing.delayed)
  local is_there_only = total.delayed == 1 and total.waiting + total._running + total._parked == 0
  return is_there_only and redis.pcall('HEXISTS', base .. ':_deferrals', ident) == 1
end

-- Whether it was set aside, because it cannot be run as it is: it stands in the quarantine of its queue only.
local function is_in_quarantine()
  local is_nowhere = total.waiting + total.delayed + total._running + total._parked == 0
  return is_nowhere and home ~= '' and type(redis.pcall('LPOS', home .. ':_quarantine', ident)) == 'number'
end

local function repair_placement(hash)
  local is_held = hash._claim_token and total._running > 0
  local is_live = LIVE[hash.status] or (not FINAL[hash.status] and hash.queued == '1')
  if is_live and hash.identifier and has_better(hash.identifier) then
    cancel_second(hash, is_held)
  elseif is_held or hash.status == STATUSES.RUNNING then
    repair_running(hash)
  elseif FINAL[hash.status] then
    repair_ended(hash)
  elseif LIVE[hash.status] and (is_deferred() or is_in_quarantine()) then
    must_be_queued(hash)
    must_not_be_claimed(hash)
  elseif hash.status == STATUSES.DELAYED or not is_live and total.delayed > 0 then
    if hash.status ~= STATUSES.DELAYED then
      report('no status')
      changes.status = STATUSES.DELAYED
    end
    repair_delayed(hash)
  elseif is_live or total.waiting > 0 then
    repair_waiting(hash)
  elseif hash.status then
    repair_unknown(hash)
  end
end

-- Reads the hash, and returns whether it is the same as when the job was found.
local function read_hash()
  local names = {'status', 'queued', '_claim_token', 'start', 'end', '_last_claim', '_rescues', 'delayed_until'}
  local values, hash = redis.call('HMGET', job.key, unpack(names)), {}
  for i, name in ipairs(names) do
    hash[name] = values[i]
    values[i] = values[i] or ''
  end
  hash.identifier = redis.call('HGET', job.key, 'identifier')
  return table.concat(values, '\0') == request.seen and hash
end

local function repair_queue_named(hash)
  local base = redis.call('HGET', job.key, '_queue_key')
  local is_gone = base and redis.call('TYPE', base .. ':hash').ok ~= 'hash'
  if not is_gone or not LIVE[hash.status] or changes._queue_key then return end
  local found = best('waiting') or best('_parked') or best('delayed') or best('_running') or home
  if found ~= base then  -- else the check restores that queue
    report('in a queue that is gone', base, found == '')
    changes._queue_key = found ~= '' and found
  end
end

-- Whether a queue has lost its name, so that the check may delete it.
local function is_nameless(base)
  local queue = base and sound_queue(base)
  return queue and (queue.name or '') == ''
end

-- Where the job belongs; a queue that would be made has no pk yet.
local function home_by(named, priority)
  local queue_model = model_of(request.queue_model)
  local function make_queue(of_priority)
    if not request.is_servable then return nil end
    local pk = repairs and find_or_create_queue(queue_model, request.queue_name, of_priority) or 'new'
    return queue_model.name .. ':' .. pk
  end
  local found = home_of(queue_model, request.queue_name, not is_nameless(named) and named, priority, make_queue)
  return not is_nameless(found) and found or ''
end

-- A queue of a model that the caller does not know.
local function look_in_named(named)
  for _, base in ipairs(KEYS) do
    if base == named then return end
  end
  local queue = named and sound_queue(named)
  if queue and queue.name and queue.priority then look_in(named) end
end

for _, base in ipairs(KEYS) do look_in(base, request.in_no_list) end
if not job then
  remove_what_is_not_a_job('no ident')
elseif redis.call('TYPE', job.key).ok ~= 'hash' then
  remove_what_is_not_a_job('no such job')
else
  local hash = read_hash()
  if not hash then
    return answer('done', {problems = {}})
  end
  local named, priority = unpack(redis.call('HMGET', job.key, '_queue_key', 'priority'))
  look_in_named(named)
  home = home_by(named, priority)
  repair_placement(hash)
  repair_queue_named(hash)
end
if repairs then
  if next(changes) ~= nil then update(job.model, job.pk, changes) end
  for _, command in ipairs(commands) do redis.call(unpack(command)) end
end
return answer('done', {problems = problems})
