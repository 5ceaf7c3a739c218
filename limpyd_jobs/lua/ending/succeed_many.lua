-- verb: succeed many
-- from: running
-- to: success or deleted
-- what: as succeed, for several jobs that ran one after the other; may claim several next jobs
-- request
--   successes       JSON: [ident, token of the claim, queue: model name and pk, how long ago its code began, and ended:
--                   microseconds; '1' to keep nothing of the job, which then may be gone already; the result to keep,
--                   and for how many milliseconds, if at all]…
--   limit           how many jobs to claim at most
--   lists, lease    to claim them from
--   token           of the claims: '/1', '/2'… is added if the limit is more than one and the job does not come alone
--   is_concurrent, suspects, most_suspects   see claim.lua
--   is_again        '1' if this is sent once more, as the reply was lost
--   classes         of these jobs, too
--   registry        see add.lua
-- reply
--   done   {endings, claimed}
--     endings   for each: {outcome: as in succeed.lua; end; reindex: its own, if any}; or, if a key is broken,
--               {outcome: 'failed'; error}: nothing is changed
--     claimed   the entries of the waiting lists, as in claim.lua…
--
-- Each is recorded, or not, independently of the others. If Redis accepts no write at all, the reply is its error.
-- After an entry that is not a job to run, nothing is claimed. Of suspects (see rescue.lua), it claims as many as
-- may run at once; a worker that runs several jobs at once passes over the others.

--@include registry
--@include successes
--@include repeated_claims

local classes = classes_from(request.classes)
know_room(request.is_concurrent, request.suspects, request.most_suspects)

local function record(row)
  local ident, token, queue, began, ended_at, erase, result, kept_for = unpack(row)
  local job = job_of(classes[parse_ident(ident)], ident)
  token = checked_token(token)
  local start, finish = date_text(now() - began), date_text(now() - ended_at)
  local obstacle = end_in_success(job, token, queue, start, finish, erase == '1', result, kept_for)
  if obstacle == 'gone' and erase == '1' then
    forget_gone(job, queue)
    obstacle = nil
  elseif obstacle == 'refused' and was_ended_with(job, token) then
    return {outcome = 'done', ['end'] = redis.call('HGET', job.key, 'end') or ''}
  end
  local changes = #reindex > 0 and reindex or nil
  return {outcome = obstacle or 'done', ['end'] = not obstacle and finish or '', reindex = changes}
end

local is_any_recorded, refusal_of_redis = false, nil

local function record_safely(row)
  reindex = {}
  local ok, reply = pcall(record, row)
  if ok then
    is_any_recorded = true
    keep_pending()
    return reply
  end
  drop_pending()
  refusal_of_redis = is_refused_by_redis(reply) and text_of_error(reply) or refusal_of_redis
  return {outcome = 'failed', error = text_of_error(reply)}
end

-- Claims several jobs, up to the first entry that is not a job to run, which is the last one.
local function claim_several(lists, limit, token, lease, classes)
  local found, reply = {}
  begin_batch()
  repeat
    reply = claim_first(lists, token, lease, classes, limit > 1 and #found + 1 or nil)
    if not reply.err and reply.outcome ~= 'nothing' and reply.outcome ~= 'sorted' then
      found[#found + 1] = delivery(reply)
    end
  until #found >= limit or not reply.token or reply.token == token
  end_batch()
  return found
end

local endings, limit, lists, token = {}, tonumber(request.limit), lists_from(request.lists), checked_token(request.token)
begin_batch()
for i, row in ipairs(cjson.decode(request.successes)) do
  endings[i] = record_safely(row)
end
if refusal_of_redis and not is_any_recorded then
  return {err = refusal_of_redis}  -- to be sent again as it is: it knows how long each job ran
end
end_batch()
reindex = {}

write_classes(request.registry)
local claimed = {}
for i, found in ipairs(request.is_again and claimed_with(lists, token, classes) or {}) do
  claimed[i] = delivery(found)
end
if limit > 0 and #claimed == 0 then
  claimed = claim_several(lists, limit, token, tonumber(request.lease), classes)
end
return answer('done', {endings = endings, claimed = claimed})
