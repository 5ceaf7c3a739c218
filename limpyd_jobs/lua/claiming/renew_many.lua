-- verb: renew many
-- from: running
-- to: running
-- what: as renew, for several claims of a worker
-- request
--   claims    JSON: [ident, token, queue: model name and pk, and if there is more to keep: cursor, progress or '']…
--   lease, classes
-- reply
--   done      {outcomes}: of each, as in renew.lua; or 'failed', if a key is broken: nothing is changed for it
--
-- If Redis accepts no write at all, the reply is its error.

--@include claims
--@include quarantine

local lease, classes = tonumber(request.lease), classes_from(request.classes)

local function renew(row)
  local ident, token, queue, cursor, progress = unpack(row, 1, 5)
  local job = job_of(classes[parse_ident(ident)], ident)
  token = checked_token(token)
  local refused = refusal(job, token)
  if refused then
    return was_ended_with(job, token) and 'done' or refused
  end
  if not extend_claim(queue, job, lease) then return 'refused' end
  if cursor then keep_progress(job, cursor, progress ~= '' and progress or nil) end
  return claim_of(job).status == STATUSES.CANCELED and 'canceled' or 'done'
end

local outcomes, is_any_renewed, refusal_of_redis = {}, false, nil
for i, row in ipairs(cjson.decode(request.claims)) do
  local ok, outcome = pcall(renew, row)
  outcomes[i] = ok and outcome or 'failed'
  is_any_renewed = is_any_renewed or ok
  refusal_of_redis = not ok and is_refused_by_redis(outcome) and text_of_error(outcome) or refusal_of_redis
end
if refusal_of_redis and not is_any_renewed then
  return {err = refusal_of_redis}
end
return answer('done', {outcomes = outcomes})
