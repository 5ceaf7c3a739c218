-- verb: add
-- from: new
-- to: waiting or delayed
-- what: or finds the queued job of that identifier and moves it up; finds or creates the queue
--
-- ARGV[1]  job model
-- ARGV[2]  job class path
-- ARGV[3]  queue model
-- ARGV[4]  identifier
-- ARGV[5]  queue name
-- ARGV[6]  priority
-- ARGV[7]  prepend: '1' or ''
-- ARGV[8]  delay: '', '+<microseconds>' or '<microseconds since the epoch>'
-- ARGV[9]  mode: 'place'; 'bare' leaves the placing to the caller; 'reserve' and 'reserve bare' make nothing new, but
--          give a pk
-- ARGV[10] pk that was reserved, or ''
-- ARGV[11…] fields of a new job: field, value…
--
-- {'added', pk, reindex}      {'reserved', pk}      {'not unique', field, value, pk of its owner}
-- {'existing', pk}            {'moved', pk, reindex}
-- {'outranked', pk}           mode 'bare': an existing job that the caller has to move

--@include places

local job_model, class_path, queue_model = cjson.decode(ARGV[1]), ARGV[2], cjson.decode(ARGV[3])
local identifier, queue_name, priority = ARGV[4], ARGV[5], ARGV[6]
local prepend, due, mode, reserved_pk = ARGV[7] == '1', due_at(ARGV[8]), ARGV[9], ARGV[10]

local function queued_job()
  local pk = other_queued({model = job_model}, identifier)
  if not pk then
    return nil
  end
  local hash = redis.call('HMGET', hash_key(job_model, pk), 'status', 'priority', 'claim_token')
  local is_running = hash[1] == 'r' or hash[3]
  return {
    model = job_model, pk = pk, ident = class_path .. ':' .. pk, key = hash_key(job_model, pk),
    is_running = is_running, priority = hash[2],
  }
end

-- Whether a priority is above another one, as text. Numbers of Lua tell integers apart up to 2^53 only.
local function is_above(one, other)
  local difference = tonumber(one) - (tonumber(other) or -math.huge)
  if difference ~= 0 or #one ~= #other then
    return difference > 0
  end
  return one ~= other and (one > other) == (tonumber(one) > 0)
end

local function move_up(job)
  local outranked = prepend or is_above(priority, job.priority or '')
  if job.is_running or not outranked then
    return {'existing', job.pk}
  elseif mode == 'bare' or mode == 'reserve bare' then
    return {'outranked', job.pk}
  end
  unplace(queue_model, queue_name, job)
  place(job, queue_model, queue_name, priority, due, prepend, {})
  return {'moved', job.pk, reindex}
end

local existing = queued_job()
if existing then
  return move_up(existing)
end

local fields = pairs_from(11)
fields.identifier = identifier
local conflict = not_unique(job_model, fields)
if conflict then
  return conflict
end

local pk = reserved_pk ~= '' and reserved_pk or new_pk(job_model)
if mode == 'reserve' or mode == 'reserve bare' then
  return {'reserved', pk}
end

fields.added = date_text(now())
if mode == 'bare' then
  fields.queued = '1'
  create(job_model, pk, fields)
else
  local base = prepare_place(queue_model, queue_name, priority)
  create(job_model, pk, placed(fields, priority, due, base))
  push(base, class_path .. ':' .. pk, fields.status, due, prepend)
end
return {'added', pk, reindex}
