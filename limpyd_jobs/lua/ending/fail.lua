-- verb: fail
-- from: running
-- to: error, waiting or delayed
-- what: put back while the tries allow it, in the same step; may create its error, and claim the next job
-- request
--   job_model, ident, queue_key
--   token
--   unclaimed       '1' instead of a token: for a job that is not claimed
--   requeue_times   how often the job may be put back; none for no limit, as its retry policy has decided
--   queue_model, queue_name, priority, delay   where to put it back
--   mode            'place'; 'hold' leaves a job that may run again in error, claimed and queued, until its worker calls
--                   requeue or abandon; 'hold anyway' ignores its field cancel_on_error
--   failing         '1' if it is tried again for a limited time, which begins with its first failure
--   began           how long ago its code began, in microseconds; or none if it began at the claim
--   cursor, progress
--   restart         '1' to forget how far it was
--   lists, next_token, lease, classes, registry   the next claim, if any
--   handler_model, handler, handler_registry   the job that handles the last failure, if any: its model, and its fields as
--              JSON. It is made only if this one is not put back
--   error_model, error_registry, fields   the error to create, if any; not of a job that is held. See add.lua
-- reply
--   error      {end, prefetched, failure, unhandled}: failure is {pk} of the error; {} if it could not be created;
--              unhandled is why the job that handles the failure could not be made
--   requeued   {delayed_until, prefetched, failure}
--   held       {end}
--   refused    {failure}: another owner holds the claim, nothing is changed; but a call before, whose reply was lost, may
--              have made the error
--   gone

--@include ending
--@include errors
--@include handlers
--@include cursors
--@include places

local job, queue = job_of(request.job_model, request.ident), request.queue_key
local token = checked_token(request.token, request.unclaimed)
local requeue_times = tonumber(request.requeue_times) or math.huge

local error_model = request.error_model and model_of(request.error_model)
local fields = error_model and request.fields

-- Creates the error. If that fails, the job fails all the same; the caller will see why when it tries so itself. What only
-- limpyd can index of it, the caller knows.
local function create_error()
  if not error_model then return nil end
  local of_job = reindex
  reindex = {}
  local is_done, found = pcall(function()
    local pk = new_pk(error_model)
    create(error_model, pk, fields)
    return pk
  end)
  reindex = of_job
  write_classes(request.error_registry)
  return {pk = is_done and found or nil}
end

local refused = refusal(job, token)
if refused then
  local pk = error_model and error_made_before(error_model, fields)
  local failure = pk and {pk = pk} or nil
  local given = STATUSES.WAITING .. STATUSES.DELAYED .. STATUSES.ERROR  -- the status that the job gets here is one of these
  return ended_before(job, token, 'requeued', given, failure) or answer(refused, {failure = failure})
end

local tries, cancel_on_error, own_priority, priority_note, known_failing_since = unpack(redis.call(
  'HMGET', job.key, 'tries', 'cancel_on_error', 'priority', '_first_priority', '_failing_since'))
own_priority = own_priority or '0'

local function may_run_again()
  local is_to_be_canceled = (cancel_on_error or '') ~= '' and request.mode ~= 'hold anyway'
  return requeue_times > 0 and (tonumber(tries) or 0) <= requeue_times
    and not (is_to_be_canceled or has_follower(job))
end

-- The note about its priority if its retry policy changes it, to another one or, if that is not decided yet, to its
-- own; nil for no note.
local function note(priority)
  local is_to_be_noted = not request.requeue_times and (request.mode ~= 'place' or priority ~= own_priority)
  return is_to_be_noted and note_of_priority(first_priority(priority_note, own_priority) or own_priority, priority)
    or nil
end

local function kept(changes)
  if request.restart then changes._cursor = false end
  return keep_cursor(changes)
end

probe('LLEN', queue .. ':errors')
if request.handler then probe('LLEN', queue .. ':waiting') end
local finish = now_text()
local start = request.began and date_text(now() - tonumber(request.began)) or nil
local failing_since = request.failing and not known_failing_since and finish or nil

if not may_run_again() then
  end_claim(queue, job, kept({status = STATUSES.ERROR, start = start, ['end'] = finish, queued = false}), token)
  redis.call('RPUSH', queue .. ':errors', job.ident)
  local failure, unhandled = create_error(), nil
  if request.handler then
    unhandled = add_handler(queue, request.handler_model, request.handler)
    write_classes(request.handler_registry)
  end
  return ended('error', finish, nil, nil, failure, unhandled)
elseif request.mode ~= 'place' then
  update(job.model, job.pk, kept({
    status = STATUSES.ERROR, start = start, ['end'] = finish, _first_priority = note(own_priority),
    _failing_since = failing_since,
  }))
  redis.call('RPUSH', queue .. ':errors', job.ident)
  return answer('held', {['end'] = finish})
end

local due, priority = due_at(request.delay), request.priority
local base = prepare_place(model_of(request.queue_model), request.queue_name, priority, due)
local changes = placed({start = false, ['end'] = false}, priority, due, base)
changes._first_priority, changes._failing_since = note(priority), failing_since
if job.model.limits then set_place(changes) end
end_claim(queue, job, kept(changes), token)
push(base, job.ident, changes.status, due, false)
redis.call('RPUSH', queue .. ':errors', job.ident)
return ended('requeued', nil, changes.delayed_until or nil, nil, create_error())
