-- verb: prune
-- from: success or error
-- to: deleted
-- what: beyond what is to be kept, the oldest jobs go, with their indexes, fields and errors; the list entry goes last
-- KEYS[1]  the list: the `success` or the `errors` of a queue
-- request
--   keep       how many entries to keep; or none
--   keep_for   for how long to keep a job after its end: microseconds; or none
--   start      how many entries at the beginning of the list to pass over
--   limit      how many entries to look at, at most
--   error_model, classes
--   limpyd     its part: {models: {name: true if each record of it needs limpyd}, jobs: {ident: true if limpyd has done
--              it, false if it cannot}, errors: {pk: true if limpyd has done it}}
-- reply
--   done   {deleted, start, has_more, begun, unknown, failures}
--     deleted    how many jobs left their collection, for good
--     start      how many entries at the beginning to pass over the next time
--     has_more   whether there is more to look at
--     begun      {ident, {special field: value}, {pk of an error, {special field: value}}…}… of jobs that can run no more
--                (they are out of the collection), but have indexes that only limpyd can maintain, or errors with such
--                indexes: limpyd clears the indexes of the errors first, and then those of the job
--     unknown    idents of jobs whose class was not given: left where they are
--     failures   {ident, reason}… of jobs that could not be deleted: left where they are
--
-- Old entries, of jobs that are gone, queued again, or ended otherwise since, are dropped.

--@include clock
--@include idents
--@include quarantine

local list, keep, keep_for = KEYS[1], tonumber(request.keep), tonumber(request.keep_for)
local first, limit, error_model = tonumber(request.start), tonumber(request.limit), model_of(request.error_model)
local limpyd, classes = cjson.decode(request.limpyd), classes_from(request.classes)

local queue, name = string.match(list, '^(.+):(%a+)$')
local status_of_list = name == 'success' and STATUSES.SUCCESS or STATUSES.ERROR
local deleted, begun, unknown, failures = 0, {}, {}, {}

-- The effort beside the entries: long lists and many errors end this call early.
local effort, max_effort = 0, 100000

-- Whether an ident stands in a list, with the options of LPOS.
local function stands_in(key, ident, ...)
  effort = effort + redis.call('LLEN', key)
  return redis.call('LPOS', key, ident, ...)
end

-- Whether the job ended once more later, and a later entry for it is still kept, or will be looked at.
local function is_listed_again(job, tries, queue_key)
  if queue_key and queue_key ~= queue and stands_in(queue_key .. ':' .. name, job.ident) then
    return true
  elseif (tonumber(tries) or 0) < 2 then
    return false
  elseif keep then
    return keep > 0 and stands_in(list, job.ident, 'RANK', -1, 'MAXLEN', keep)
  end
  return stands_in(list, job.ident, 'RANK', 2)
end

local function is_old(finish, added)
  local is_date = finish and string.match(finish, '^%d%d%d%d%-%d%d%-%d%d ')
  local oldest = now() - keep_for
  return oldest > 0 and (is_date and finish or added or '') < date_text(oldest)
end

-- What to do with an entry: 'delete' its job; 'drop' it; 'leave' it; 'keep' it and all after it.
local function fate_of(job)
  if limpyd.jobs[job.ident] == false then
    return 'leave'
  elseif is_gone(job.model, job.pk) then
    return 'delete'
  end
  local status, queued, token, finish, added, tries, queue_key = unpack(redis.call(
    'HMGET', job.key, 'status', 'queued', '_claim_token', 'end', 'added', 'tries', '_queue_key'))
  if status ~= status_of_list then
    return 'drop'
  elseif queued == '1' or token then
    return 'leave'
  elseif keep_for and is_old(finish, added) then
    return 'delete'
  elseif is_listed_again(job, tries, queue_key) then
    return 'drop'
  end
  return keep and 'delete' or 'keep'
end

-- The values of a record in indexes that only limpyd can maintain.
local function special_values(model, pk)
  local found = {}
  for field in pairs(model.special) do
    found[field] = redis.call('HGET', hash_key(model, pk), field) or nil
  end
  return found
end

-- Takes a record out of its collection, to begin its deletion; 1 unless that was done before.
local function take_out(model, pk)
  return redis.call('SREM', model.name .. ':collection', pk)
end

local function erase(model, pk)
  local number = delete_record(model, pk)
  reindex = {}  -- limpyd has maintained these
  return number
end

-- Errors name their job by the path that its class has now, or that it had when the job was listed.
local function errors_of(job)
  local of_job = error_model.indexes.job_pk[1] .. job.pk
  local found = redis.call('SINTER', of_job, error_model.indexes.job_model_repr[1] .. job.model.path)
  if job.path ~= job.model.path then
    for _, pk in ipairs(redis.call('SINTER', of_job, error_model.indexes.job_model_repr[1] .. job.path)) do
      found[#found + 1] = pk
    end
  end
  effort = effort + 100 * #found
  return found
end

-- Deletes the errors of a job; returns the errors, with their special values, that limpyd has to clear before. If the
-- application deleted the job, and kept its errors, they stay, except errors whose deletion has begun.
local function erase_errors(job)
  local is_there, by_limpyd = redis.call('EXISTS', job.key) == 1, {}
  for _, pk in ipairs(errors_of(job)) do
    local values = special_values(error_model, pk)
    local is_ours = is_there or not is_in_collection(error_model, pk)
    if is_ours and not limpyd.errors[pk] and (next(values) or limpyd.models[error_model.name]) then
      by_limpyd[#by_limpyd + 1] = {pk, values}
    elseif is_ours then
      erase(error_model, pk)
    end
  end
  return by_limpyd
end

-- From now on the job cannot run any more, and will be deleted whatever happens to this worker.
local function begin(job, values, errors)
  probe('SCARD', error_model.name .. ':collection')
  deleted = deleted + take_out(job.model, job.pk)
  for _, of_error in ipairs(errors) do
    local pk = unpack(of_error)
    take_out(error_model, pk)
  end
  begun[#begun + 1] = {job.ident, values, errors}
end

-- Deletes a job, unless limpyd has to do something before.
local function delete(job)
  local values, errors = special_values(job.model, job.pk), erase_errors(job)
  local needs_limpyd = next(values) or limpyd.models[job.model.name]
  if #errors > 0 or needs_limpyd and not limpyd.jobs[job.ident] then
    begin(job, values, errors)
    return 'leave'
  end
  deleted = deleted + erase(job.model, job.pk)
  return 'drop'
end

local function set_aside_or_leave(ident)
  return pcall(set_aside, queue, ident) and 'drop' or 'leave'
end

local function see_to(ident)
  local path, pk = parse_ident(ident)
  if not path then
    return set_aside_or_leave(ident)
  elseif not classes[path] then
    unknown[#unknown + 1] = ident
    return 'leave'
  end
  local model = model_of(classes[path])
  local job = {model = model, path = path, pk = pk, ident = ident, key = hash_key(model, pk)}
  local ok, fate = pcall(fate_of, job)
  if ok and fate == 'delete' then
    ok, fate = pcall(delete, job)
  end
  if ok then
    return fate
  elseif is_broken(job.key) then
    return set_aside_or_leave(ident)
  end
  failures[#failures + 1] = {ident, text_of_error(fate)}
  return 'leave'
end

local looked, position = 0, first
local is_over = redis.call('TYPE', list).ok ~= 'list'
while not is_over and looked < limit and effort < max_effort do
  local ident = redis.call('LINDEX', list, position)
  local fate = 'keep'
  if ident and not (keep and redis.call('LLEN', list) - position <= keep) then
    fate = see_to(ident)
  end
  if fate == 'drop' then
    redis.call('LREM', list, 1, ident)
  elseif fate == 'leave' then
    position = position + 1
  end
  is_over = fate == 'keep'
  looked = looked + 1
end
local has_begun = #begun > 0
return answer('done', {
  deleted = deleted, start = has_begun and first or position, has_more = has_begun or not is_over, begun = begun,
  unknown = unknown, failures = failures,
})
